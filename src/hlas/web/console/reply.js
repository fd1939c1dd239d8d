/** What the server refuses, in its words. */
class Refusal extends Error {}

/** Sends a form and returns what is answered. @param {HTMLFormElement} form */
async function post(form) {
  const response = await fetch(form.action, {
    method: "POST",
    headers: { Accept: "application/json" },
    body: new URLSearchParams(/** @type {any} */ (new FormData(form))),
    signal: AbortSignal.timeout(20_000),
  });
  // Signed out in the meantime: reloading redirects to the sign-in page, and from there back.
  if (response.redirected) location.reload();
  const body = await response.json();
  if (!response.ok) throw new Refusal(body.message);
  return body;
}

/** Random, and not `randomUUID`, which is missing where there is no TLS. */
const makeKey = () => [...crypto.getRandomValues(new Uint32Array(4))].join("-");

/** Sends messages and changes who answers, without leaving the page.
 * @param {(state: {status: string, handler: string}) => void} show */
export function answer(show) {
  const form = /** @type {HTMLFormElement | null} */ (document.getElementById("reply"));
  if (!form) return;
  const box = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("text"));
  const key = /** @type {HTMLInputElement} */ (form.elements.namedItem("key"));
  const problem = /** @type {HTMLElement} */ (document.getElementById("problem"));
  const place = `hlas:reply:${location.pathname}`;
  let attempted = "";
  let isSending = false;

  /** @param {HTMLFormElement} sent @param {(body: any) => void} done */
  async function send(sent, done) {
    if (isSending) return;
    isSending = box.readOnly = true;
    problem.textContent = "";
    try {
      done(await post(sent));
    } catch (error) {
      problem.textContent =
        error instanceof Refusal ? error.message : "The server cannot be reached. Please try again.";
    }
    isSending = box.readOnly = false;
  }

  function reply() {
    if (!box.value.trim() || isSending) return;
    // The same text again is a retry, which is stored once.
    if (box.value !== attempted) key.value = makeKey();
    attempted = box.value;
    send(/** @type {HTMLFormElement} */ (form), () => {
      box.value = attempted = "";
      sessionStorage.removeItem(place);
    });
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    reply();
  });
  box.addEventListener("keydown", (event) => {
    // An Enter that ends a composition (Japanese, Chinese) belongs to the input method.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    reply();
  });
  // A reload, as after signing in again, keeps what was written.
  box.value ||= sessionStorage.getItem(place) ?? "";
  box.addEventListener("input", () => sessionStorage.setItem(place, box.value));

  /** @type {NodeListOf<HTMLFormElement>} */
  const handlers = document.querySelectorAll("form.handler");
  for (const handler of handlers) {
    handler.addEventListener("submit", (event) => {
      event.preventDefault();
      send(handler, show);
    });
  }
  for (const hint of form.querySelectorAll(".scripted")) /** @type {HTMLElement} */ (hint).hidden = false;
}
