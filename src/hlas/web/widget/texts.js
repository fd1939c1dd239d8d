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
  none: "None of these",
  contact: "Your e-mail for our answer",
  consent: "We will use it only to answer you.",
  up: "Helpful",
  down: "Not helpful",
  why: "What is wrong?",
  thanks: "Thank you!",
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
  none: "Nic z toho",
  contact: "Váš e-mail pro odpověď",
  consent: "Použijeme ho jen k odpovědi.",
  up: "Pomohlo",
  down: "Nepomohlo",
  why: "Co je špatně?",
  thanks: "Děkujeme!",
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
