"use strict";
// Shows how far a submission is, and loads the page again when it is over.
const AGAIN_MS = 5000;
const line = document.getElementById("progress");

function follow() {
  const source = new EventSource("/view/" + encodeURIComponent(line.dataset.submission) + "/events");
  source.addEventListener("progress", (message) => {
    const told = JSON.parse(message.data);
    line.textContent = told.text;
    if (told.done) {
      source.close();
      location.reload();
    }
  });
  // After a refusal, as of a proxy whose gateway starts again, a browser does not come back by itself.
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN_MS);
  });
}

follow();
