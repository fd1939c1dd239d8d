import { markdown } from "../widget/markdown.js";

// As the visitor would see it.
const shown = document.querySelector("#trial .answer");
if (shown) {
  const text = shown.textContent ?? "";
  shown.classList.add("rich");
  shown.replaceChildren(...markdown(text));
}
