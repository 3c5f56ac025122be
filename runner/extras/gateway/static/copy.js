"use strict";
// Adds a button beside each source that copies it. Browsers give pages without encryption no clipboard.
if (navigator.clipboard) {
  for (const place of document.querySelectorAll(".copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(place.parentElement.nextElementSibling.querySelector("code").textContent);
      button.textContent = "Copied";
    });
    place.append(button);
  }
}
