/**
 * The widget's texts. A new language is one more object with the same names.
 * @typedef {typeof english} Texts
 */
const english = {
  language: "en",
  title: "Chat with us",
  greeting: "Hello! How can we help you?",
  placeholder: "Write a message…",
  send: "Send",
  stop: "Stop",
  open: "Open chat",
  close: "Close chat",
  unread: "unread",
  user: "You",
  assistant: "Assistant",
  operator: "Operator",
  sending: "Sending…",
  waiting: "Waiting for connection…",
  failed: "Not sent",
  retry: "Try again",
  edit: "Edit",
  unavailable: "Chat is not available.",
  privacy: "Privacy",
  thinking: "Thinking…",
  tool: "Looking it up…",
  tool_search_knowledge: "Searching…",
  tool_get_product: "Looking up products…",
  sources: "Sources",
  confirm: "Confirm",
  decline: "Cancel",
  notice: "AI can make mistakes.",
  meant: "Did you mean",
  none: "None of these",
  contact: "How can we reach you?",
  email: "E-mail",
  name: "Name",
  consent: "We will use it only to answer you.",
  invalid: "Check your e-mail.",
  thanks: "Thank you! We will get in touch.",
  up: "Helpful",
  down: "Not helpful",
};

/** @type {Texts} */
const czech = {
  language: "cs",
  title: "Napište nám",
  greeting: "Dobrý den! S čím vám můžeme pomoci?",
  placeholder: "Napište zprávu…",
  send: "Odeslat",
  stop: "Zastavit",
  open: "Otevřít chat",
  close: "Zavřít chat",
  unread: "nepřečtené",
  user: "Vy",
  assistant: "Asistent",
  operator: "Operátor",
  sending: "Odesílá se…",
  waiting: "Čeká na připojení…",
  failed: "Neodesláno",
  retry: "Zkusit znovu",
  edit: "Upravit",
  unavailable: "Chat teď není dostupný.",
  privacy: "Soukromí",
  thinking: "Přemýšlím…",
  tool: "Zjišťuji…",
  tool_search_knowledge: "Hledám…",
  tool_get_product: "Hledám produkty…",
  sources: "Zdroje",
  confirm: "Potvrdit",
  decline: "Zrušit",
  notice: "AI se může mýlit.",
  meant: "Měli jste na mysli",
  none: "Nic z toho",
  contact: "Jak se vám můžeme ozvat?",
  email: "E-mail",
  name: "Jméno",
  consent: "Použijeme je jen k odpovědi.",
  invalid: "Zkontrolujte e-mail.",
  thanks: "Děkujeme, ozveme se vám.",
  up: "Pomohlo",
  down: "Nepomohlo",
};

/** @type {Record<string, Texts>} */
const languages = { en: english, cs: czech, sk: czech };

/** Those that are shown. */
export let texts = english;

/** Chooses the first wanted language that is supported; "auto" and unknown ones are ignored.
 * @param {(string | undefined)[]} wanted */
export const speak = (...wanted) => {
  texts = wanted.map((tag) => languages[`${tag}`.slice(0, 2).toLowerCase()]).find(Boolean) ?? english;
};
