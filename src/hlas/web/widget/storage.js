// Every message is a separate item, so two tabs never overwrite each other's messages.
let prefix = "hlas:";

/** @type {Record<string, string>} localStorage, or memory if the browser blocks it */
let store = {};
try {
  store = localStorage;
} catch {
  // Blocked by the visitor: the conversation lasts until the page is closed.
}
// The persistent store, also after it is full and the page continues in memory.
const disk = store;

/** Stores everything under the visitor's id and removes the data of others. The token only tells
 * visitors apart here; the server verifies it.
 * @param {string} [token] @returns {boolean} whether this is another visitor than before */
export function keepFor(token) {
  const before = prefix;
  let who = token;
  try {
    const claims = /** @type {any} */ (token).split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    who = JSON.parse(atob(claims)).sub;
  } catch {
    // Not readable: the server will reject it.
  }
  // In quotes no id is a prefix of another.
  prefix = `hlas${who ? JSON.stringify(who) : ""}:`;
  for (const place of [store, disk]) {
    for (const name in place) if (/^hlas[:"]/.test(name) && !name.startsWith(prefix)) delete place[name];
  }
  return prefix !== before;
}

/** @param {string} name @returns {any} */
export function load(name) {
  try {
    return JSON.parse(`${store[prefix + name]}`);
  } catch {
    return undefined;
  }
}

/** @param {string} name @param {unknown} [value] without one the item is removed */
export function save(name, value) {
  const text = JSON.stringify(value);
  if (!text) delete store[prefix + name];
  else {
    try {
      store[prefix + name] = text;
    } catch {
      // Full: this page continues in memory rather than lose a message.
      store = { ...store, [prefix + name]: text };
    }
  }
}

/** @param {string} start @returns {string[]} */
export const names = (start) =>
  Object.keys(store)
    .filter((name) => name.startsWith(prefix + start))
    .map((name) => name.slice(prefix.length));
