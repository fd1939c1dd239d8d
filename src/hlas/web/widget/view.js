import { readable, readConfig } from "./config.js";
import { consent } from "./consent.js";
import {
  discard,
  isBusy,
  items,
  markRead,
  pending,
  send,
  stop,
  tool,
  trouble,
  typist,
  unread,
  wake,
} from "./conversation.js";
import { h, icon } from "./dom.js";
import { markdown } from "./markdown.js";
import { cardOf, choice, offer, thumbs } from "./people.js";
import { cited } from "./sources.js";
import { texts } from "./texts.js";
import { session } from "./transport.js";
import css from "./style.css";

const bubbleIcon = "M21 11.5a8.4 8.4 0 0 1-12.3 7.4L3 21l2.1-5.7A8.4 8.4 0 1 1 21 11.5z";
const questionIcon = "M8 8a4 4 0 1 1 5 4l-1 3M12 20v.1";
const closeIcon = "M6 6l12 12M18 6L6 18";
const sendIcon = "M12 19V5M5 12l7-7 7 7";
const stopIcon = "M7 7h10v10H7z";

const sheet = new CSSStyleSheet();
sheet.replaceSync(css);

export const isNarrow = () => matchMedia("(max-width: 480px)").matches;

const badge = h("span", { class: "badge" });
const launcher = h("button", { class: "launcher", click: () => toggle(!dialog.open) });
const title = h("strong");
const subtitle = h("p");
const face = h("span", { class: "face" }, icon(bubbleIcon));
/** @type {HTMLButtonElement} */
const closer = h("button", { click: () => toggle(false) }, icon(closeIcon));
/** @type {HTMLElement} */
const log = h("div", { role: "log", tabindex: 0 });
const status = h("p", { class: "meta", role: "status" });
/** Announces what the agent does and the sentences of its growing answer; the log announces whole
 * messages. */
const speech = h("div", { class: "speech", "aria-live": "polite" });
const chips = h("div", { class: "chips" });
/** @type {HTMLTextAreaElement} */
const input = h("textarea", { rows: 1, maxlength: 2000, enterkeyhint: "send", input: grow });
/** @type {HTMLButtonElement} */
const sender = h("button", {}, icon(sendIcon));
/** @type {HTMLButtonElement} */
const stopper = h(
  "button",
  { type: "button", class: "stop", click: () => (stop(), input.focus()) },
  icon(stopIcon),
);
const notice = h("p", { class: "meta", dir: "auto" });
export const form = h("form", { submit }, input, stopper, sender);
/** @type {HTMLAnchorElement} */
const privacy = h("a", { class: "meta", target: "_blank", rel: "noopener" });
/** @type {HTMLDialogElement} */
const dialog = h(
  "dialog",
  { keydown, close: () => onToggle(false) },
  h("header", {}, face, h("div", {}, title, subtitle), closer),
  log,
  speech,
  status,
  chips,
  form,
  h("footer", {}, notice, privacy),
);

/** @type {HTMLElement} */
let host;
/** @type {import("./config.js").Config} */
let config;
/** Called when the visitor or the page opens or closes the panel. @type {(open: boolean) => void} */
let onToggle;


function grow() {
  input.style.height = "0";
  input.style.height = input.scrollHeight + "px";
}

function toEnd() {
  log.scrollTop = log.scrollHeight;
}

/** @param {string} text */
function write(text) {
  input.value = text;
  grow();
  toEnd();
  input.focus();
}

/** @param {Event} event */
function submit(event) {
  event.preventDefault();
  send(input.value);
  write("");
}

/** @param {KeyboardEvent} event */
function keydown(event) {
  if (event.key === "Escape") toggle(false);
  // An Enter that ends a composition (Japanese, Chinese) belongs to the input method.
  if (event.key === "Enter" && event.target === input && !event.shiftKey && !event.isComposing) {
    submit(event);
  }
}

/** @param {boolean} open @param {boolean} [quiet] does not move the focus */
export function toggle(open, quiet) {
  if (!open) {
    if (dialog.matches(":focus-within")) launcher.focus();
    dialog.close();
  } else if (!dialog.open) {
    // A full-screen panel traps the focus; one beside the page does not.
    if (isNarrow()) dialog.showModal();
    else {
      dialog.open = true;
      if (!quiet) input.focus();
    }
    toEnd();
    onToggle(true);
  }
}

/** @param {string} name @param {string} value */
const set = (name, value) => host.style.setProperty("--hlas-" + name, value);

/** Keeps the on-screen keyboard from covering the field. */
function fit() {
  const view = /** @type {VisualViewport} */ (visualViewport);
  if (view.scale < 1.01) {
    set("height", view.height + "px");
    set("top", view.offsetTop + "px");
  }
}

/** Reads the configuration again and applies it. */
export function dress() {
  config = readConfig(host, session()?.ui_config);
  host.className = config.position;
  host.style.colorScheme = config.theme;
  host.style.zIndex = config.z_index;
  if (config.color) {
    set("accent", config.color);
    set("accent-text", readable(config.color, config.color_text));
  }
  dialog.lang = texts.language;
  title.textContent = config.title;
  subtitle.textContent = config.subtitle;
  dialog.ariaLabel = log.ariaLabel = title.textContent;
  closer.ariaLabel = texts.close;
  sender.ariaLabel = texts.send;
  stopper.ariaLabel = texts.stop;
  input.placeholder = input.ariaLabel = config.placeholder;
  notice.textContent = config.notice;
  privacy.textContent = texts.privacy;
  privacy.href = config.privacy_url;
  privacy.hidden = !config.privacy_url;
  chips.replaceChildren(
    ...config.suggestions.map((text) =>
      h("button", { click: () => (send(text), input.focus()) }, text),
    ),
  );
  render();
}

/** @param {Item} item */
function meta(item) {
  if (!item.state) {
    const clock = new Date(item.at).toLocaleTimeString(texts.language, { timeStyle: "short" });
    const line = h("div", { class: "meta" }, h("time", { dir: "auto" }, clock));
    if (/agent|knowledge/.test(item.meta?.source)) line.append(thumbs(item));
    return line;
  }
  const { key, state, text } = /** @type {Required<Item>} */ (item);
  const line = h("span", { class: "meta" }, texts[state]);
  if (state !== "sending") line.append(h("button", { click: () => wake(key) }, texts.retry));
  if (state === "failed") {
    line.append(h("button", { click: () => (discard(key), write(text)) }, texts.edit));
  }
  return line;
}

/** @param {string} role @param {string} label @param {any[]} content */
const row = (role, label, ...content) =>
  h(
    "div",
    { class: "row " + role },
    h("span", { class: "who" }, label),
    h("div", { class: "bubble", dir: "auto" }, ...content),
    h("time"),
  );

/** @param {string} text */
function utter(text) {
  const line = h("p", {}, text);
  speech.append(line);
  // Announced long ago; left here, it would be read twice by who walks through the panel.
  setTimeout(() => line.remove(), 7e3);
}

/** Announces a growing text once, by whole sentences, and its rest when it is complete.
 * @param {Item} item */
function announce({ live, said = "", text }) {
  if (!text.startsWith(said) && !said.startsWith(text)) said = "";
  const rest = text.slice(said.length);
  const next = live ? /^[^]*(\D[.!?…]\S{0,2}\s|[\n。！？])/.exec(rest)?.[0] ?? "" : rest;
  if (next.trim()) {
    // Marks of sources are for the eye; the sources are listed below the answer.
    utter(markdown(next, () => "").map((node) => node.textContent).join(" "));
  }
  return said + next;
}

/** Shows an item's text; only changed blocks are replaced, so links and selections stay.
 * @param {Item} item */
function paint(item) {
  const { live, meta, node, role, text } = item;
  const bubble = node.children[1];
  if (role === "user") bubble.textContent = text;
  else {
    const blocks = cited(text, meta?.sources, texts.sources, !!live);
    place(bubble, blocks, (old, node) => old?.isEqualNode(node));
  }
  item.shown = text;
  if (item.said !== undefined) item.said = announce(item);
}

let frame = 0;

/** Shows more of a growing text, at most once a frame. @param {Item} item */
export function extend(item) {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    keepEnd(() => paint(item));
  });
}

/** The item's node; it stays the same, so that screen readers announce it once.
 * @param {Item} item */
function nodeOf(item) {
  const { role } = item;
  const look = ["row", role, item.state, item.at, item.meta?.source].join(" ");
  const node = (item.node ??= row(role, texts[/** @type {"user"} */ (role)] ?? ""));
  if (item.said !== undefined) node.ariaLive = "off";
  if (item.shown !== item.text) paint(item);
  if (node.className !== look) {
    node.className = look;
    node.lastChild.replaceWith(meta(item));
  }
  return node;
}

/** @type {Record<string, HTMLElement>} */
const dividers = {};

/** @param {string} text @param {number} part */
const divider = (text, part) => (dividers[text + part] ??= h("p", { class: "meta day" }, text));

/** @param {number} at */
function day(at) {
  const noon = (/** @type {Date} */ date) => date.setHours(12, 0, 0, 0);
  const days = Math.min(0, Math.round((noon(new Date(at)) - noon(new Date())) / 864e5));
  return days > -2
    ? new Intl.RelativeTimeFormat(texts.language, { numeric: "auto" }).format(days, "day")
    : new Date(at).toLocaleDateString(texts.language, { dateStyle: "full" });
}

/** @type {[string, HTMLElement] | undefined} */
let greeting;
/** @type {Record<string, any>} */
const dots = {};
/** What was announced since somebody began to type. */
let told = "";

/** Somebody is typing; of the agent also what it does, which is announced once.
 * @param {"assistant" | "operator"} role */
function typing(role) {
  const node = (dots[role] ??= row(role + " typing", texts[role], h("i"), h("i"), h("i"), h("span")));
  if (role === "assistant") {
    const name = tool();
    const label = name
      ? (texts[/** @type {"tool_get_product"} */ ("tool_" + name)] ?? texts.tool)
      : texts.thinking;
    node.ariaLive = "off";
    node.children[1].lastChild.textContent = label;
    if (!told.includes(label)) {
      told += label;
      utter(label);
    }
  }
  return node;
}

/** What the visitor may choose after a message. @param {Item} item @returns {HTMLElement | undefined} */
function ask(item) {
  const { confirmation, suggestions } = item.meta ?? {};
  const button = (/** @type {"confirm" | "decline"} */ verb) =>
    choice(item, texts[verb], { [verb]: confirmation.id });
  if (confirmation) return (item.ask ??= consent(confirmation, button("confirm"), button("decline")));
  return suggestions?.[0] && !item.card && (item.ask ??= offer(item));
}

/** Shows the greeting, every item and what follows them. */
function fill() {
  const text = config.greeting;
  if (greeting?.[0] !== text) greeting = [text, row("assistant", texts.assistant, ...markdown(text))];
  const nodes = [greeting[1]];
  let part = 0;
  let date = "";
  for (const item of items) {
    const label = day(item.at);
    if (item.part !== part || label !== date) nodes.push(divider(label, item.part));
    part = item.part;
    date = label;
    nodes.push(nodeOf(item));
    const card = cardOf(item, config.privacy_url);
    if (card) nodes.push(card);
  }
  const role = typist();
  const last = pending();
  const asking = last && ask(last);
  if (asking) nodes.push(asking);
  if (role) nodes.push(typing(role));
  else told = "";
  place(log, nodes, (old, node) => old === node);
  notice.hidden = !items.some((item) => item.meta?.source === "agent");
}

export function render() {
  const focused = host.shadowRoot?.activeElement;
  keepEnd(fill);
  // A button that goes would take the focus with it.
  if (focused?.isConnected === false || (!isBusy() && focused === stopper)) input.focus();
  stopper.hidden = !isBusy();
  chips.hidden = items.length > 0;
  status.textContent = trouble && texts[trouble];
  if (dialog.open && !document.hidden) markRead();
  dressLauncher(dialog.open ? 0 : unread());
}

/** Touches only nodes that differ: screen readers would announce a moved node again.
 * @param {HTMLElement} parent @param {Node[]} nodes
 * @param {(old: Node | undefined, node: Node) => boolean | undefined} same */
function place(parent, nodes, same) {
  const { childNodes } = parent;
  nodes.forEach((node, index) => {
    const old = childNodes[index];
    if (!same(old, node)) parent.insertBefore(node, old ?? null);
  });
  while (childNodes[nodes.length]) /** @type {any} */ (parent.lastChild).remove();
}

/** Follows the end of the log, unless the visitor reads further up. @param {() => void} change */
function keepEnd(change) {
  const near = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (near) toEnd();
}

/** @param {number} count */
function dressLauncher(count) {
  const open = dialog.open;
  const kind = config.launcher || "chat";
  const label = open || /^(chat|question)$/.test(kind) ? "" : kind;
  const shape = open ? closeIcon : kind === "question" ? questionIcon : bubbleIcon;
  const name = open ? texts.close : label || texts.open;
  launcher.ariaExpanded = open;
  launcher.ariaLabel = name + (count ? `, ${texts.unread}: ${count}` : "");
  badge.textContent = count;
  badge.hidden = !count;
  const look = shape + label;
  if (launcher.value !== look) launcher.replaceChildren(icon(shape), label, badge);
  launcher.value = look;
}

/** @param {HTMLElement} element @param {ShadowRoot} root @param {typeof onToggle} listener */
export function mount(element, root, listener) {
  host = element;
  onToggle = listener;
  root.adoptedStyleSheets = [sheet];
  root.append(launcher, dialog);
  for (const event of ["resize", "scroll"]) visualViewport?.addEventListener(event, fit);
  dress();
}
