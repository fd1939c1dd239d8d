// Forms whose answer takes a while say so, and are sent once.
/** @type {NodeListOf<HTMLFormElement>} */
const slow = document.querySelectorAll("form[data-busy]");
for (const form of slow) {
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  const text = button.textContent;
  form.addEventListener("submit", (event) => {
    if (event.defaultPrevented) return;
    if (button.ariaDisabled) event.preventDefault();
    button.ariaDisabled = "true";
    button.textContent = `${form.dataset.busy}`;
  });
  // Also when the browser shows the page again as it was left.
  addEventListener("pageshow", () => {
    button.ariaDisabled = null;
    button.textContent = text;
  });
}

const place = document.querySelector(".drop");
if (place instanceof HTMLElement) {
  const chooser = /** @type {HTMLInputElement} */ (place.querySelector("input"));
  /** @type {HTMLElement} */ (place.querySelector(".scripted")).hidden = false;
  place.addEventListener("dragover", (event) => {
    event.preventDefault();
    place.classList.add("over");
  });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    if (event.dataTransfer?.files.length) chooser.files = event.dataTransfer.files;
  });
}
