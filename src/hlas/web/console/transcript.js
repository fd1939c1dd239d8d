import { h } from "../widget/dom.js";
import { cited } from "../widget/sources.js";
import { answer } from "./reply.js";
import { follow } from "./stream.js";
import { localise } from "./times.js";

/** @typedef {{id: string, seq: number, role: string, content: string, metadata: any, created_at: string}} Message */

const names = { user: "Visitor", assistant: "Assistant", operator: "Operator" };

const log = /** @type {HTMLElement} */ (document.getElementById("log"));
const list = /** @type {HTMLElement} */ (log.firstElementChild);
let seq = Number(log.dataset.after);
let day = "";

/** As in the widget: a visitor's words are plain text, others' are Markdown.
 * @param {Element} bubble @param {string} role @param {string} text @param {any} sources
 * @param {boolean} [isGrowing] */
function write(bubble, role, text, sources, isGrowing) {
  if (role === "user") bubble.textContent = text;
  else {
    bubble.classList.add("rich");
    bubble.replaceChildren(...cited(text, sources, "Sources", isGrowing));
  }
}

/** Inserts a line with the date above the first message of a day. @param {Element} row */
function date(row) {
  const at = new Date(row.querySelector("time")?.dateTime ?? "");
  const next = at.toLocaleDateString(navigator.language, { dateStyle: "full" });
  if (next !== day) row.before(h("li", { class: "day" }, next));
  day = next;
}

/** @param {string} role */
const makeRow = (role) =>
  h(
    "li",
    { class: `row ${role in names ? role : "system"}` },
    h("span", { class: "from" }, names[/** @type {"user"} */ (role)] ?? "System"),
    h("div", { class: "bubble", dir: "auto" }),
  );

/** Changes the transcript, and stays at its end if it is there. @param {() => void} change */
function keepEnd(change) {
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

/** The answer in the making. @type {{id: string, row: HTMLElement, text: string} | undefined} */
let draft;

function drop() {
  draft?.row.remove();
  draft = undefined;
}

/** @param {string} id of the message that it becomes */
function begin(id) {
  drop();
  const row = makeRow("assistant");
  row.classList.add("growing");
  // Screen readers read the message once it is complete.
  row.ariaLive = "off";
  row.lastChild.append("…");
  list.append(row);
  draft = { id, row, text: "" };
}

/** @param {string} delta */
function grow(delta) {
  if (!draft) return;
  draft.text += delta;
  write(/** @type {Element} */ (draft.row.lastElementChild), "assistant", draft.text, [], true);
}

/** @param {Message} message */
function add({ id, seq: number, role, content, metadata, created_at }) {
  if (number <= seq) return;
  seq = number;
  if (draft?.id === id) drop();
  const row = makeRow(role);
  write(row.lastChild, role, content, metadata?.sources);
  const time = h("time", { datetime: created_at, "data-form": "clock" });
  localise(time);
  row.append(time);
  list.insertBefore(row, draft?.row ?? null);
  date(row);
  document.getElementById("empty")?.remove();
  const last = h("time", { datetime: created_at });
  localise(last);
  document.getElementById("last-message")?.replaceChildren(last);
}

/** Shows who answers, and whether anybody still can. @param {{status: string, handler: string}} state */
function show({ status, handler }) {
  const isOpen = status === "open";
  const chip = /** @type {HTMLElement} */ (document.getElementById("status"));
  chip.textContent = status;
  chip.classList.toggle("good", isOpen);
  /** @type {NodeListOf<HTMLElement>} */
  const parts = document.querySelectorAll("[data-while]");
  for (const part of parts) {
    part.hidden = ![status, isOpen && handler].includes(`${part.dataset.while}`);
  }
}

/** @param {MessageEvent<string>} event */
function read({ data }) {
  const frame = JSON.parse(data);
  keepEnd(() => {
    if (frame.type === "data-message") add(frame.data);
    else if (frame.type === "start") begin(frame.messageId);
    else if (frame.type === "text-delta") grow(frame.delta);
    else if (frame.type === "data-reset") drop();
    else if (frame.type === "data-state") show(frame.data);
  });
}

for (const row of list.querySelectorAll(".row")) {
  const bubble = /** @type {HTMLElement} */ (row.querySelector(".bubble"));
  const role = row.classList.contains("user") ? "user" : "";
  write(bubble, role, `${bubble.textContent}`, JSON.parse(bubble.dataset.sources ?? "[]"));
  date(row);
}
log.scrollTop = log.scrollHeight;
answer(show);

if (log.dataset.stream) {
  follow(
    () => {
      // A new stream starts after the last message, so it sends an answer in the making again.
      drop();
      return `${log.dataset.stream}?after=${seq}`;
    },
    "message",
    read,
  );
}
