import { decide, tell } from "./conversation.js";
import { h, icon } from "./dom.js";
import { anchor } from "./markdown.js";
import { load, save } from "./storage.js";
import { texts } from "./texts.js";
import { call } from "./transport.js";

const thumbIcon = "M7 11l4-8q3 0 3 3l-1 4h7l-2 10H4v-9h3v9";

/** A button that answers for the visitor.
 * @param {Item} item @param {string} text @param {Record<string, string>} [extra] metadata */
export const choice = (item, text, extra = {}) =>
  h("button", { class: Object.keys(extra), dir: "auto", click: () => decide(item, text, extra) }, text);

/** What the visitor may have meant. @param {Item} item */
export const offer = (item) =>
  h(
    "div",
    { class: "chips", role: "group", "aria-label": texts.meant },
    ...item.meta.suggestions
      .slice(0, 3)
      .map((/** @type {{text: string}} */ { text }) => choice(item, `${text}`)),
    h("button", { class: "none", click: () => refuse(item) }, texts.none),
  );

/** @param {string | undefined} id of the message after which a person is wanted
 * @param {boolean} done the visitor can be reached */
function want(id, done) {
  save("person", { id, done });
  tell("change");
}

/** None of the suggestions was meant. @param {Item} item */
async function refuse(item) {
  const { id } = item;
  want(id, false);
  item.card.querySelector("input")?.focus();
  tell("person");
  try {
    want(id, !(await call("*/person", { none_of: id })).contact_wanted);
  } catch {
    // Asked for again with the contact.
  }
}

/** @param {string} name @param {string} label @param {Record<string, any>} [props] */
const field = (name, label, props) =>
  h("label", { class: "meta" }, label, h("input", { name, autocomplete: name, maxlength: 100, ...props }));

/** Asks how a person can reach the visitor.
 * @param {Item} item @param {string} [privacy] the address of the owner's policy */
function makeForm({ id }, privacy) {
  const problem = h("p", { class: "meta", role: "alert" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    try {
      await call("*/person", {});
      await call("*/contact", values);
      tell("contact");
      want(id, true);
    } catch (/** @type {any} */ refusal) {
      problem.textContent = refusal.status === 422 ? texts.invalid : texts.failed;
    }
  };
  const form = h(
    "form",
    { class: "card", "aria-label": texts.contact, submit },
    h("strong", {}, texts.contact),
    field("email", texts.email, { type: "email", required: true }),
    field("name", texts.name),
    h("p", { class: "meta" }, texts.consent, " ", privacy ? anchor(privacy, texts.privacy) : ""),
    problem,
    h("div", { class: "chips" }, h("button", { class: "confirm" }, texts.send)),
  );
  return form;
}

/** What follows a message whose suggestions were refused: a form, then thanks for it.
 * @param {Item} item @param {string} [privacy] */
export function cardOf(item, privacy) {
  const { id, done } = load("person") ?? {};
  if (id && id === item.id && item.done !== done) {
    item.done = done;
    item.card = done ? h("p", { class: "meta day" }, texts.thanks) : makeForm(item, privacy);
  }
  return item.card;
}

/** Buttons to rate an answer. @param {Item} item */
export function thumbs({ id = "" }) {
  const line = h("span", { "aria-live": "off" });
  const buttons = /** @type {("up" | "down")[]} */ (["up", "down"]).map((rating) =>
    h(
      "button",
      {
        "aria-label": texts[rating],
        "aria-pressed": load("rated")?.[id] === rating,
        click: async (/** @type {MouseEvent} */ { currentTarget }) => {
          try {
            await call(`messages/${id}/rating`, { rating });
            save("rated", { ...load("rated"), [id]: rating });
            for (const one of buttons) one.ariaPressed = one === currentTarget;
          } catch {
            // Not pressed, then.
          }
        },
      },
      icon(thumbIcon),
    ),
  );
  // With the answer a screen reader would read them aloud.
  setTimeout(() => line.append(...buttons));
  return line;
}
