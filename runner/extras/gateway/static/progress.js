"use strict";
// Shows how far a submission is, and loads the page again when it is over.
const line = document.getElementById("progress");
const source = new EventSource("/view/" + encodeURIComponent(line.dataset.submission) + "/events");
source.addEventListener("progress", (message) => {
  const told = JSON.parse(message.data);
  line.textContent = told.text;
  if (told.done) {
    source.close();
    location.reload();
  }
});
