// Intercepts the widget's requests to show and break them. Only this demo page does so.

/** @typedef {"lose" | "busy" | "offline"} Fault */

const network = window.fetch;
const panel = /** @type {HTMLElement} */ (document.getElementById("under"));
const table = /** @type {HTMLElement} */ (document.getElementById("requests"));
/** @type {Fault | undefined} */
let fault;
let offlineUntil = 0;
/** Ends the open stream: a line that fails takes it with it. */
let cutStream = () => {};
let losing = false;

/** @param {Fault} [next] */
function plan(next) {
  fault = next;
  for (const button of document.querySelectorAll("[data-fault]")) {
    button.setAttribute("aria-pressed", `${button.getAttribute("data-fault") === next}`);
  }
}

/** @param {string} text @param {string} [note] @param {string} [kind] */
function cell(text, note, kind = "") {
  const td = document.createElement("td");
  td.className = kind;
  td.append(text);
  if (note) td.appendChild(document.createElement("b")).append(note);
  return td;
}

/**
 * @param {string} name
 * @param {{status: string, note?: string | undefined, key: string, time: number}} seen
 */
function show(name, { status, note, key, time }) {
  document.getElementById("nothing")?.remove();
  const row = document.createElement("tr");
  const kind = /^2/.test(status) ? "" : "bad";
  row.append(cell(name), cell(status, note, kind), cell(key), cell(`${Math.round(time)} ms`));
  table.prepend(row);
  while (table.children.length > 60) table.lastChild?.remove();
}

/** @param {string} path @param {RequestInit} init @returns {Promise<{response?: Response, note?: string | undefined}>} */
async function pass(path, init) {
  const { lost, offline } = panel.dataset;
  if (Date.now() < offlineUntil) return { note: offline };
  if (losing && path.includes("/stream")) return { note: lost };
  const planned = path === "/widget/messages" ? fault : undefined;
  if (planned === "busy") {
    plan();
    const body = JSON.stringify({ detail: "unavailable" });
    return { response: new Response(body, { status: 503, headers: { "Retry-After": "1" } }) };
  }
  if (planned === "lose") {
    losing = true;
    cutStream();
  }
  if (path.includes("/stream")) {
    const cut = new AbortController();
    cutStream = () => cut.abort();
    init.signal?.addEventListener("abort", cutStream);
    init = { ...init, signal: cut.signal };
  }
  const response = await network(path, init);
  if (planned === "lose") {
    // The server has stored the message, but the widget never gets the response.
    plan();
    losing = false;
    return { note: lost };
  }
  const replayed = response.headers.get("Idempotent-Replayed") === "true";
  return { response, note: replayed ? panel.dataset.replayed : undefined };
}

window.fetch = async (input, init = {}) => {
  const { pathname, search } = new URL(`${input}`, location.href);
  if (!pathname.startsWith("/widget/")) return network(input, init);
  const started = performance.now();
  const key = new Headers(init.headers).get("Idempotency-Key") ?? "";
  const path = pathname.slice(8).replace(/[\da-f]{8}-[\da-f-]{27}/, "…");
  const name = `${init.method ?? "GET"} ${path}${search.replace("limit=100&", "")}`;
  /** @type {{response?: Response, note?: string | undefined}} */
  let seen = {};
  try {
    seen = await pass(pathname + search, init);
  } finally {
    const time = performance.now() - started;
    const short = key && key.slice(0, 8) + "…";
    show(name, { status: `${seen.response?.status ?? "–"}`, note: seen.note, key: short, time });
  }
  if (!seen.response) throw new TypeError("network");
  return seen.response;
};

/** @param {string} selector @param {(element: HTMLElement) => void} action */
function onClick(selector, action) {
  for (const element of document.querySelectorAll(selector)) {
    element.addEventListener("click", () => action(/** @type {HTMLElement} */ (element)));
  }
}

const chat = () => /** @type {any} */ (window.hlas);

onClick("[data-open]", () => chat().open());
onClick("[data-forget]", () => chat().reset());
onClick("[data-ask]", ({ dataset }) => {
  chat().open();
  chat().send(dataset.ask);
});
onClick("[data-fault]", ({ dataset }) => {
  if (dataset.fault === "offline") {
    offlineUntil = Date.now() + 5000;
    cutStream();
  } else plan(/** @type {Fault} */ (dataset.fault));
});

const line = /** @type {HTMLElement} */ (document.getElementById("line"));
line.textContent = `<script type="module" src="${location.origin}/widget.js"></script>`;
onClick("#copy", async (button) => {
  await navigator.clipboard?.writeText(`${line.textContent}`);
  button.textContent = `${button.dataset.done}`;
});
