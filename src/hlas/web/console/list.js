import { follow } from "./stream.js";
import { localise } from "./times.js";

const results = /** @type {HTMLElement} */ (document.getElementById("results"));
let isLoading = false;
let isStale = false;

/** The page as it is now. A request parses HTML without running anything in it.
 * @returns {Promise<Document | null>} */
function load() {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.onloadend = () => resolve(request.status === 200 ? request.responseXML : null);
    request.send();
  });
}

/** Replaces what differs; all else keeps its place on the screen, and the focus.
 * @param {Element} shown @param {Element} fresh */
function update(shown, fresh) {
  const known = new Map([...shown.children].map((row) => [row.id, row]));
  const focused = document.activeElement?.closest("#results a")?.getAttribute("href");
  const wanted = [...fresh.children].map((row) => {
    const old = known.get(row.id);
    return old?.isEqualNode(row) ? old : document.adoptNode(row);
  });
  for (const row of [...shown.children]) if (!wanted.includes(row)) row.remove();
  wanted.forEach((row, index) => {
    if (shown.children[index] !== row) shown.insertBefore(row, shown.children[index] ?? null);
  });
  if (focused && document.activeElement === document.body) {
    /** @type {HTMLElement | null} */
    const link = shown.querySelector(`a[href="${CSS.escape(focused)}"]`);
    link?.focus({ preventScroll: true });
  }
}

async function refresh() {
  isStale = true;
  if (isLoading) return;
  isLoading = true;
  while (isStale) {
    isStale = false;
    const page = await load();
    const fresh = page?.getElementById("results");
    // Signed out in the meantime: reloading redirects to the sign-in page.
    if (page && !fresh) location.reload();
    for (const time of fresh?.querySelectorAll("time") ?? []) localise(time);
    [...(fresh?.children ?? [])].forEach((part, index) => {
      const shown = results.children[index];
      if (shown) update(shown, part);
    });
  }
  isLoading = false;
}

if (results.dataset.stream) follow(() => `${results.dataset.stream}`, "change", refresh);
