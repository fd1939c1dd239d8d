// Every name is its own item, so two tabs never overwrite each other's messages.
const prefix = "hlas:";

/** @type {Record<string, string>} what the browser lets us keep, or memory where it refuses */
let store = {};
try {
  store = localStorage;
} catch {
  // Blocked by the visitor: the conversation lasts as long as the page.
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
  if (value === undefined) delete store[prefix + name];
  else {
    try {
      store[prefix + name] = JSON.stringify(value);
    } catch {
      // Full: this page goes on in memory rather than lose a message.
      store = { ...store, [prefix + name]: JSON.stringify(value) };
    }
  }
}

/** @param {string} start @returns {string[]} */
export const names = (start) =>
  Object.keys(store)
    .filter((name) => name.startsWith(prefix + start))
    .map((name) => name.slice(prefix.length));
