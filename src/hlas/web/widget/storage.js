// Every name is its own item, so two tabs never overwrite each other's messages.
let prefix = "hlas:";

/** @type {Record<string, string>} what the browser lets us keep, or memory where it refuses */
let store = {};
try {
  store = localStorage;
} catch {
  // Blocked by the visitor: the conversation lasts as long as the page.
}
// What outlives the page, also when it is full and the page goes on in memory.
const disk = store;

/** Everything is kept under the visitor's own name, and what others left is removed. The server
 * checks the token; here it only tells visitors apart.
 * @param {string} [token] @returns {boolean} whether this is another visitor than before */
export function keepFor(token) {
  const before = prefix;
  let who = token;
  try {
    const claims = /** @type {any} */ (token).split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    who = JSON.parse(atob(claims)).sub;
  } catch {
    // Nothing we can read: the server will say what is wrong with it.
  }
  // In quotes one name never begins like another.
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
      // Full: this page goes on in memory rather than lose a message.
      store = { ...store, [prefix + name]: text };
    }
  }
}

/** @param {string} start @returns {string[]} */
export const names = (start) =>
  Object.keys(store)
    .filter((name) => name.startsWith(prefix + start))
    .map((name) => name.slice(prefix.length));
