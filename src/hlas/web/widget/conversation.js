import { load, names, save } from "./storage.js";
import { backoff, call, isFinal, lock, newKey, session, sleep } from "./transport.js";

/**
 * @typedef {{key: string, text: string, at: number, tries?: number, next?: number, failed?: boolean}} Entry
 *   a message that is not acknowledged yet; it stays in storage until then
 * @typedef {{id: string, seq?: number, role: string, content: string, metadata?: any, created_at?: string}} Row
 * @typedef {object} Item one message on the screen
 * @property {string} role
 * @property {string} text
 * @property {number} at
 * @property {number} part which conversation of this page it belongs to
 * @property {string} [key]
 * @property {number} [seq]
 * @property {"sending" | "waiting" | "failed"} [state]
 * @property {any} [node]
 */

/** @type {Item[]} */
export let items = [];
/** @type {Map<string, Item>} by message id, and by reference before the id is known */
const known = new Map();
let part = 0;
let cursor = 0;
let wanted = false;
let last = 0;
/** @type {string | undefined} */
let current;
export let replying = false;
/** @type {"" | "waiting" | "unavailable"} */
export let trouble = "";
/** @type {ReturnType<typeof setTimeout>} */
let sendTimer;
/** @type {ReturnType<typeof setTimeout>} */
let pollTimer;
let reading = Promise.resolve();

/** @type {(event: string, detail?: any) => void} */
let tell = () => {};

const channel = new BroadcastChannel("hlas");

/** The part of a key that history returns, so that a lost response never shows a message twice.
 * @param {string} key */
const reference = (key) => key.slice(0, 12);

/** @returns {Entry[]} */
const outbox = () =>
  names("out:")
    .map(load)
    .filter(Boolean)
    .sort((a, b) => a.at - b.at);

/** @param {Entry} entry */
const keep = (entry) => save("out:" + entry.key, entry);

function clear() {
  items = [];
  known.clear();
  wanted = false;
}

/** Updates the items from storage, which other tabs change, too. */
function sync() {
  const id = session()?.conversation_id;
  if (id !== current) {
    if (!id) clear();
    else if (current) part++;
    cursor = 0;
    current = id;
    tell("session");
  }
  let stuck = false;
  for (const item of items) delete item.state;
  for (const entry of outbox()) {
    let item = known.get(reference(entry.key));
    if (!item) {
      item = { key: entry.key, role: "user", text: entry.text, at: entry.at, part };
      known.set(reference(entry.key), item);
      items.push(item);
    }
    stuck ||= !entry.failed && (entry.tries ?? 0) > (navigator.onLine ? 1 : 0);
    item.part = part;
    item.state = entry.failed ? "failed" : stuck ? "waiting" : "sending";
    last = Math.max(last, entry.at);
  }
  items.sort((a, b) => a.part - b.part || (a.seq ?? a.at) - (b.seq ?? b.at));
  for (const item of items) if (item.part === part && item.seq === cursor + 1) cursor++;
  tell("change");
}

/** @param {string} conversation @param {Row[]} rows */
function merge(conversation, rows) {
  if (conversation !== session()?.conversation_id) return;
  if (conversation !== current) sync();
  for (const row of rows) {
    let item = known.get(row.id) ?? known.get(row.metadata?.ref);
    if (!item) {
      last = Math.max(Date.now(), last + 1);
      item = { role: row.role, text: `${row.content}`, at: last, part };
      items.push(item);
      if ((cursor || !row.seq) && row.role !== "user") tell("message", row);
    }
    if (item.state) acknowledge(/** @type {string} */ (item.key));
    known.set(row.id, item);
    if (row.seq) {
      item.seq = row.seq;
      item.at = Date.parse(/** @type {string} */ (row.created_at)) || item.at;
    }
  }
  sync();
}

/** Shows a message that a POST has stored; history returns its position later.
 * @param {{conversation_id: string, message_id: string}} answer @param {string} role
 * @param {string} content @param {object} [metadata] */
const accept = (answer, role, content, metadata) =>
  merge(answer.conversation_id, [{ id: answer.message_id, role, content, metadata }]);

/** @param {string} key */
function acknowledge(key) {
  // Removed, or already acknowledged by another response.
  if (!load("out:" + key)) return;
  save("out:" + key);
  save("reply", key);
  tell("sent", { key });
}

/** Sends waiting messages, oldest first, from one tab at a time. */
const flush = () =>
  lock("send", async () => {
    clearTimeout(sendTimer);
    let wait = 0;
    for (let entry; !wait && (entry = outbox().find((one) => !one.failed)); sync()) {
      const { key, text, tries = 0, next = 0 } = entry;
      const metadata = { ref: reference(key) };
      wait = Math.max(0, next - Date.now());
      if (wait) break;
      try {
        const answer = await call("/widget/messages", { text, metadata }, key);
        // The conversation may have changed during the request.
        sync();
        acknowledge(key);
        accept(answer, "user", text, metadata);
      } catch (/** @type {any} */ refusal) {
        const failed = isFinal(refusal);
        if (!failed) wait = backoff(tries, refusal);
        // Retry-After applies to every tab; after a network error the online event retries.
        const hold = refusal.status && wait && Date.now() + wait;
        if (load("out:" + key)) keep({ ...entry, tries: tries + 1, next: hold, failed });
      }
    }
    if (wait) sendTimer = setTimeout(flush, wait);
    else reply();
  });

/** Requests the answer to the last message; a reload repeats the request with the same key. */
async function reply() {
  const key = load("reply");
  if (!key || replying || outbox().some((entry) => !entry.failed)) return;
  replying = true;
  sync();
  for (let tries = 0; tries < 5 && load("reply") === key; tries++) {
    try {
      const answer = await call("/widget/messages/assistant", {}, "reply-" + key, 9e4);
      if (answer.text) accept(answer, "assistant", answer.text);
      break;
    } catch (/** @type {any} */ refusal) {
      if (isFinal(refusal)) break;
      await sleep(backoff(tries, refusal));
    }
  }
  replying = false;
  if (load("reply") === key) save("reply");
  await catchUp();
}

/** Reads new messages, after the last one without a gap before it. */
const catchUp = () =>
  (reading = reading.then(async () => {
    if (!wanted) return;
    try {
      for (let more = true; more; ) {
        const from = cursor;
        const page = await call("/widget/conversations/*/messages?limit=100&after=" + from);
        merge(page.conversation_id, page.messages);
        // Share the messages, so that the other tabs need not request them.
        if (page.messages.length) channel.postMessage([page.conversation_id, page.messages]);
        more = page.paging.has_more && cursor > from;
      }
      trouble = "";
    } catch (/** @type {any} */ refusal) {
      // After a final error do not ask again until the visitor opens the panel.
      const again = !isFinal(refusal);
      wanted &&= again;
      trouble = again ? "waiting" : "unavailable";
    }
    sync();
    reply();
  }));

/** Polls often after activity, then less and less. @param {number} pace */
function poll(pace) {
  clearTimeout(pollTimer);
  pollTimer = setTimeout(async () => {
    if (!document.hidden) {
      await catchUp();
      flush();
    }
    poll(Math.min(pace * 1.5, 3e4));
  }, pace);
}

/** @param {string} text @returns {string | undefined} the message's key */
export function send(text) {
  if (!text.trim()) return undefined;
  last = Math.max(Date.now(), last + 1);
  const key = newKey();
  keep({ key, text: text.trim(), at: last });
  wanted = true;
  wake();
  return key;
}

/** Retries waiting messages, and the given message even if it has failed.
 * @param {string} [key] */
export function wake(key) {
  const entry = load("out:" + key);
  if (entry) keep({ ...entry, next: 0, failed: false });
  sync();
  flush();
  poll(3e3);
}

/** @param {string} key */
export function discard(key) {
  save("out:" + key);
  items = items.filter((item) => item.key !== key);
  sync();
}

/** Starts or resumes the conversation. */
export function start() {
  wanted = true;
  wake();
  catchUp();
}

/** On page load, after sleep and when the network is back; makes no request for a new visitor. */
export function resume() {
  if (!document.hidden && (session() || outbox()[0])) start();
}

/** Continues as another visitor. */
export function restart() {
  clear();
  sync();
  resume();
}

/** Marks what is on the screen as read. */
export function markRead() {
  const mark = load("read");
  if (current && (mark?.id !== current || mark.seq < cursor)) {
    save("read", { id: current, seq: cursor });
  }
}

export function unread() {
  const mark = load("read");
  const from = mark?.id === current ? mark?.seq : 0;
  return items.filter((item) => item.role !== "user" && item.part === part && (item.seq ?? 0) > from)
    .length;
}

addEventListener("storage", sync);
channel.onmessage = (/** @type {MessageEvent} */ event) => merge(event.data[0], event.data[1]);
for (const event of ["online", "offline", "visibilitychange"]) {
  addEventListener(event, resume);
}

/** @param {typeof tell} listener */
export const listen = (listener) => {
  tell = listener;
};
