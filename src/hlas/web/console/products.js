const form = /** @type {HTMLFormElement} */ (document.getElementById("import"));
const chooser = /** @type {HTMLInputElement} */ (document.getElementById("file"));
const problem = /** @type {HTMLElement} */ (document.getElementById("file-problem"));
const text = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("csv"));
const replace = /** @type {HTMLInputElement} */ (form.elements.namedItem("replace"));
const largest = Number(form.dataset.largest);

/** The bytes of the form as it is sent. */
function measure() {
  const sent = new URLSearchParams();
  for (const [name, value] of new FormData(form)) sent.append(name, `${value}`.replace(/\r?\n/g, "\r\n"));
  return `${sent}`.length;
}

function check() {
  // Measured only where it can matter, because it takes time for each letter.
  const isLarge = text.value.length * 9 > largest / 2 && measure() > largest;
  text.setCustomValidity(isLarge ? "This is too large for a form. Use: hlas product import" : "");
}

async function load() {
  const file = chooser.files?.[0];
  problem.textContent = "";
  if (!file) return;
  if (file.size > largest) {
    problem.textContent = `The file is larger than ${Math.floor(largest / 1000)} kB. Use: hlas product import`;
    return;
  }
  try {
    text.value = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    problem.textContent = "The file cannot be read as UTF-8. Save it as CSV UTF-8.";
    return;
  }
  check();
  text.reportValidity();
}

// Forms of the console carry text only, so the file's text is put into the field below.
/** @type {HTMLElement} */ (chooser.parentElement).hidden = false;
chooser.addEventListener("change", load);
text.addEventListener("input", check);
form.addEventListener("submit", (event) => {
  if (replace.checked && !confirm(replace.dataset.confirm)) event.preventDefault();
});
