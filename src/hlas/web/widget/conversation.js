import { keep, outbox, reference } from "./outbox.js";
import { load, save } from "./storage.js";
import { digest, follow, reconnect } from "./stream.js";
import { backoff, call, isFinal, lock, newKey, session } from "./transport.js";

/**
 * @typedef {import("./stream.js").Live} Live
 * @typedef {import("./stream.js").Row} Row
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
/** @type {Live} */
let live = { until: 0 };
let leads = false;
let shown = false;
/** The last stored message, and since when it is the last. @type {Item | undefined} */
let newest;
let since = 0;
/** @type {"" | "waiting" | "unavailable"} */
export let trouble = "";
/** @type {ReturnType<typeof setTimeout>} */
let sendTimer;
/** @type {ReturnType<typeof setTimeout>} */
let pollTimer;
let reading = Promise.resolve();

/** @type {(event: string, detail?: any) => void} */
export let tell = () => {};

const channel = new BroadcastChannel("hlas");

function clear() {
  items = [];
  known.clear();
  wanted = false;
}

/** An answer of the agent is due or in progress. */
export function isBusy() {
  const { handler, run } = live;
  const others = items.filter((item) => item.role !== "user");
  // Without a stream the last words tell who answers.
  if ((handler ?? others.at(-1)?.role)?.match(/human|operator/)) return false;
  // Whatever happens, it is not waited for longer than 90 seconds.
  return Date.now() - (run?.at ?? since) < 9e4 && (run ? !run.done : newest?.role === "user");
}

/** The name of the tool that the agent waits for, if any. */
export const tool = () => Object.values(live.run?.tools ?? {}).find(Boolean);

/** The role of who is about to write, if anybody. */
export const typist = () =>
  Date.now() < (live.typing ?? 0) ? "operator" : isBusy() && (!newest?.live || tool()) ? "assistant" : "";

/** The last message, if it is the assistant's: it may wait for the visitor's choice. */
export function pending() {
  const item = items.at(-1);
  return item?.part === part && item.role === "assistant" ? item : undefined;
}

const wants = () => wanted && !document.hidden && !!session() && (shown || isBusy());

/** Updates the items from storage, which other tabs change, too. */
function sync() {
  const id = session()?.conversation_id;
  if (id !== current) {
    if (!id) clear();
    else if (current) part++;
    cursor = 0;
    current = id;
    live = { until: 0 };
    reconnect();
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
    last = Math.max(last, entry.at);
    // The stream may be faster than the news that another tab has sent something.
    if (item.seq) acknowledge(entry.key);
    else {
      stuck ||= !entry.failed && (entry.tries ?? 0) > (navigator.onLine ? 1 : 0);
      item.part = part;
      item.state = entry.failed ? "failed" : stuck ? "waiting" : "sending";
    }
  }
  items.sort((a, b) => a.part - b.part || (a.seq ?? a.at) - (b.seq ?? b.at));
  for (const item of items) if (item.part === part && item.seq === cursor + 1) cursor++;
  const tail = items.filter((item) => item.part === part && !item.state).at(-1);
  if (tail !== newest) {
    newest = tail;
    // The server's clock only where this browser has not seen the message being sent.
    since = tail?.key ? Date.now() : (tail?.at ?? 0);
  }
  tell("change");
  // A stream begins where history ends.
  if (wants()) follow(wants, () => reading.then(() => cursor), hear, hearEnd);
  else reconnect();
}

/** @param {string} role @returns {Item} */
function add(role) {
  last = Math.max(Date.now(), last + 1);
  const item = { role, text: "", at: last, part };
  items.push(item);
  return item;
}

/** @param {string} conversation @param {Row[]} rows */
function merge(conversation, rows) {
  if (conversation !== session()?.conversation_id) return;
  if (conversation !== current) sync();
  // What follows a known message, or one that was sent from here, is news and not history.
  let news = cursor > 0;
  for (const row of rows) {
    const ref = row.metadata?.ref;
    let item = known.get(row.id) ?? known.get(ref);
    news ||= !!item;
    if (!item || item.live) {
      item ??= add(row.role);
      item.text = `${row.content}`;
      item.meta = row.metadata;
      // Shown again even if the text is the same: its last words are to be announced.
      item.live = item.shown = undefined;
      if (news && row.role !== "user") tell("message", row);
    }
    if (item.state) acknowledge(/** @type {string} */ (item.key));
    known.set((item.id = row.id), item);
    if (ref) known.set(ref, item);
    if (row.id === live.run?.id) delete live.run;
    if (row.role === "operator") delete live.typing;
    if (row.seq) {
      item.seq = row.seq;
      item.at = Date.parse(/** @type {string} */ (row.created_at)) || item.at;
    }
  }
  sync();
}

/** @param {string} key */
function acknowledge(key) {
  // Removed, or already acknowledged by another response.
  if (!load("out:" + key)) return;
  save("out:" + key);
  tell("sent", { key });
  poll(1e3);
}

/** Sends waiting messages, oldest first, from one tab at a time. */
const flush = () =>
  lock("send", async () => {
    clearTimeout(sendTimer);
    let wait = 0;
    for (let entry; !wait && (entry = outbox().find((one) => !one.failed)); sync()) {
      const { key, text, extra, tries = 0, next = 0 } = entry;
      const metadata = { ...extra, ref: reference(key) };
      wait = Math.max(0, next - Date.now());
      if (wait) break;
      try {
        const answer = await call("messages", { text, metadata }, key);
        // The conversation may have changed during the request.
        sync();
        acknowledge(key);
        // Its position comes later, with history or the stream.
        const row = { id: answer.message_id, role: "user", content: text, metadata };
        merge(answer.conversation_id, [row]);
      } catch (/** @type {any} */ refusal) {
        const failed = isFinal(refusal);
        if (!failed) wait = backoff(tries, refusal);
        // Retry-After applies to every tab; after a network error the online event retries.
        const hold = refusal.status && wait && Date.now() + wait;
        if (load("out:" + key)) keep({ ...entry, tries: tries + 1, next: hold, failed });
      }
    }
    if (wait) sendTimer = setTimeout(flush, wait);
  });

/** Reads new messages, after the last one without a gap before it. */
const catchUp = () =>
  (reading = reading.then(async () => {
    if (!wanted) return;
    try {
      for (let more = true; more; ) {
        const from = cursor;
        const page = await call("*/messages?limit=100&after=" + from);
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
  }));

/** Polls where no stream is heard: often after activity, then less and less. @param {number} pace */
function poll(pace) {
  clearTimeout(pollTimer);
  const timer = (pollTimer = setTimeout(async () => {
    if (!document.hidden) {
      if (Date.now() < live.until) sync();
      else await catchUp();
      flush();
    }
    if (timer === pollTimer) poll(Math.min(pace * 1.5, 3e4));
  }, pace));
}

/** @param {Row[]} rows */
const share = (rows) => channel.postMessage([current, rows, live]);

/** Takes what the stream has brought, to this tab or to another one.
 * @param {string} conversation @param {Row[]} rows @param {Live} heard */
function take(conversation, rows, heard) {
  if (conversation !== session()?.conversation_id) return;
  if (conversation !== current) sync();
  // If history was faster, the message is known already.
  if (known.get(`${heard.run?.id}`)?.seq) delete heard.run;
  const { id, text = "" } = heard.run ?? {};
  let item = items.find((one) => one.live);
  if (item && item.live !== id) {
    known.delete(`${item.live}`);
    items = items.filter((one) => one !== item);
    item = undefined;
  }
  if (text) {
    item ??= Object.assign(add("assistant"), { live: id, said: "" });
    known.set(`${id}`, item);
    // After a cut the text comes again from its beginning: it grows, but never shrinks.
    if (!item.text.startsWith(text)) item.text = text;
  }
  const grew = item?.shown && text !== live.run?.text;
  const before = tool();
  if (heard.typing !== live.typing) setTimeout(sync, 6e3);
  live = heard;
  if (live.until) trouble = "";
  if (rows[0]) merge(conversation, rows);
  else if (grew && before === tool()) tell("text", item);
  else sync();
  if (items.some((one) => one.part === part && (one.seq ?? 0) > cursor)) {
    // A gap: history fills it, now or at the next poll.
    live.until = 0;
    if (rows[0]) catchUp();
  }
}

/** @param {string} conversation @param {import("./stream.js").Frame[]} frames */
function hear(conversation, frames) {
  if (conversation !== session()?.conversation_id) return;
  const { heard, rows } = digest(live, frames);
  leads = true;
  take(conversation, rows, heard);
  share(rows);
}

function hearEnd() {
  leads = false;
  live.until = 0;
  share([]);
  poll(2e3);
}

/** No more of the answer will come, also where not a word of it did. */
function endRun() {
  since = 0;
  if (live.run) live.run.done = true;
  sync();
}

/** Ends the answer in progress. */
export async function stop() {
  try {
    await call("*/stop", {});
    endRun();
    channel.postMessage([current, [], "stopped"]);
  } catch {
    // The answer goes on, and so does the button.
  }
}

/** @param {string} text @param {Record<string, string>} [extra] metadata @param {string} [key]
 * @returns {string | undefined} the message's key */
export function send(text, extra, key = newKey()) {
  if (!text.trim()) return undefined;
  last = Math.max(Date.now(), last + 1);
  keep({ key, text: text.trim(), at: last, extra });
  wanted = true;
  wake();
  return key;
}

/** Sends the visitor's choice, unless there is one already. The key is that of all tabs: one that
 * has not heard of it yet sends the same message again, which is stored once.
 * @param {Item} item @param {string} text @param {Record<string, string>} [extra] */
export function decide(item, text, extra) {
  sync();
  if (pending() === item) send(text, extra, item.id);
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
  // Asks the tab that reads the stream for what it has heard so far.
  channel.postMessage(["", []]);
}

/** @param {boolean} open whether the visitor sees the conversation */
export function show(open) {
  shown = open;
  if (open) start();
  else sync();
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
channel.onmessage = (/** @type {MessageEvent} */ { data: [conversation, rows, heard] }) => {
  if (!conversation) leads && share([]);
  else if (!heard) merge(conversation, rows);
  else if (heard !== "stopped") take(conversation, rows, heard);
  else if (conversation === current) endRun();
};
for (const event of ["online", "offline", "visibilitychange"]) {
  addEventListener(event, () => {
    // A stream may look alive long after its network is gone.
    reconnect();
    resume();
  });
}

/** @param {typeof tell} listener */
export const listen = (listener) => {
  tell = listener;
};
