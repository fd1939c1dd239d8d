import { decide, tell } from "./conversation.js";
import { h, icon } from "./dom.js";
import { anchor } from "./markdown.js";
import { load, save } from "./storage.js";
import { texts } from "./texts.js";
import { call, lock } from "./transport.js";

const thumbIcon = "M7 11l4-8q3 0 3 3l-1 4h7l-2 10H4v-9h3v9";

/** A button that answers for the visitor.
 * @param {Item} item @param {string} text @param {Record<string, string>} [extra] metadata */
export const choice = (item, text, extra = {}) =>
  h("button", { class: Object.keys(extra), dir: "auto", click: () => decide(item, text, extra) }, text);

/** What the visitor may have meant. @param {Item} item */
export const offer = (item) =>
  h(
    "div",
    { class: "chips" },
    ...item.meta.suggestions.map((/** @type {{text: string}} */ { text }) => choice(item, text)),
    h("button", { click: () => refuse(item) }, texts.none),
  );

/** A person is wanted after a message. @param {Item} item @param {boolean} done they can write */
function want({ id }, done) {
  save("person" + id, done);
  tell("change");
}

/** None of the suggestions was meant. @param {Item} item */
function refuse(item) {
  want(item, false);
  item.card.querySelector("input").focus();
  call("*/person", { none_of: item.id }).then(
    ({ contact_wanted }) => contact_wanted || want(item, true),
    // The contact says it, too.
    () => {},
  );
}

/** Asks for one thing; what was typed stays until it is accepted.
 * @param {string} label @param {any} props of the input @param {any[]} below
 * @param {(given: any) => Promise<void>} work */
function makeForm(label, props, below, work) {
  const progress = h("p", { class: "meta", role: "alert" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (progress.textContent === texts.sending) return;
    progress.textContent = texts.sending;
    try {
      await work(Object.fromEntries(new FormData(form)));
    } catch {
      progress.textContent = texts.failed;
    }
  };
  const form = h(
    "form",
    { class: "card", submit },
    h("label", {}, label, h("input", { required: true, ...props })),
    ...below,
    h("div", { class: "chips" }, progress, h("button", { class: "confirm" }, texts.send)),
  );
  return form;
}

/** Asks how a person can reach the visitor.
 * @param {Item} item @param {string} [privacy] the address of the owner's policy */
function askContact(item, privacy) {
  const consent = h("p", { class: "meta" }, texts.consent, " ", privacy ? anchor(privacy, texts.privacy) : "");
  // The server wants a dot in the domain, too.
  const props = { name: "email", type: "email", autocomplete: "email", pattern: ".+[.].+" };
  const form = makeForm(texts.contact, props, [consent], async (given) => {
    await call("*/contact", given);
    want(item, true);
  });
  // The focus moves into it: it would be read twice.
  form.ariaLive = "off";
  return form;
}

/** What follows a message: a form, and then thanks for it, where the visitor refused its suggestions
 * or did not find it helpful. @param {Item} item @param {string} [privacy] */
export function cardOf(item, privacy) {
  const { id, thumbs } = item;
  const rating = load("rated" + id);
  // Another tab may have changed it.
  for (const one of thumbs ?? []) one.ariaPressed = one.name === rating;
  const done = load("person" + id);
  if (item.done !== done) {
    item.done = done;
    item.card = done ? note() : askContact(item, privacy);
  }
  return rating === "down" ? item.why : item.card;
}

const note = () => h("p", { class: "meta day" }, texts.thanks);

/** Sends the opinion of an answer; the last one wins.
 * @param {Item} item @param {string} rating @param {{comment?: string}} [why] */
const rate = (item, rating, why) =>
  lock("rating", async () => {
    const { id } = item;
    if (!why) {
      if (load("rated" + id) === rating) return;
      item.why = askWhy(item);
    }
    await call(`messages/${id}/rating`, { rating, ...why });
    save("rated" + id, rating);
    tell("change");
  });

/** Asks what is wrong with an answer. @param {Item} item */
const askWhy = (item) =>
  makeForm(texts.why, { name: "comment", maxlength: 1000 }, [], async (why) => {
    await rate(item, "down", why);
    item.why = note();
    tell("change");
  });

/** Buttons to rate an answer. @param {Item} item */
export function thumbs(item) {
  const line = h("span", { "aria-live": "off" });
  const thumb = (/** @type {"up" | "down"} */ name) => {
    // Not pressed if it fails.
    const click = () => rate(item, name).catch(() => {});
    return h("button", { name, click, "aria-label": texts[name] }, icon(thumbIcon));
  };
  item.thumbs = [thumb("up"), thumb("down")];
  // With the answer a screen reader would read them aloud.
  setTimeout(() => line.append(...item.thumbs));
  return line;
}
