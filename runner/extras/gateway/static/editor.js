"use strict";
// The editor: keys, line numbers, a draft in this browser, and a submission's progress and result beside the code.
const form = document.getElementById("editor");
const code = document.getElementById("code");
const file = document.getElementById("file");
const again = document.getElementById("again");
const state = document.getElementById("state");
const whole = document.getElementById("whole");
const result = document.getElementById("result");
const lines = document.querySelector(".area .lines");
const template = code.value;
const draft = "draft " + form.dataset.draft;
const WIDTH = 4;
let source, path, waiting, leaving = false, sending = false;

// A browser may refuse to store anything.
function stored(action) {
  try {
    return action();
  } catch {
    return null;
  }
}

function keep() {
  stored(() => code.value === template ? localStorage.removeItem(draft) : localStorage.setItem(draft, code.value));
}

function edited() {
  const count = code.value.split("\n").length;
  if (lines.dataset.count !== String(count)) {
    lines.dataset.count = count;
    lines.textContent = Array.from({length: count}, (_, index) => index + 1).join("\n");
  }
  lines.scrollTop = code.scrollTop;
  again.hidden = code.value === template;
}

// Through the browser's own editing, so that it can be undone.
function put(start, end, text) {
  code.focus();
  code.setSelectionRange(start, end);
  const done = text ? document.execCommand("insertText", false, text) : start === end || document.execCommand("delete");
  if (!done) {
    code.setRangeText(text, start, end, "end");
    code.dispatchEvent(new Event("input"));
  }
}

function indent(back) {
  const {selectionStart: start, selectionEnd: end, value} = code;
  const first = value.lastIndexOf("\n", start - 1) + 1;
  const old = value.slice(first, end);
  if (!back && !value.slice(start, end).includes("\n")) {
    put(start, end, " ".repeat(WIDTH - (start - first) % WIDTH));
    return;
  }
  const text = back ? old.replace(/^ {1,4}|^\t/gm, "") : old.replace(/^(?=.)/gm, " ".repeat(WIDTH));
  if (text === old) return;
  put(first, end, text);
  code.setSelectionRange(start === end ? Math.max(first, start + text.length - old.length) : first, first + text.length);
}

code.addEventListener("keydown", (key) => {
  const bare = !key.ctrlKey && !key.altKey && !key.metaKey;
  if (key.isComposing) return;
  if (key.key === "Tab" && bare && !leaving) {
    key.preventDefault();
    indent(key.shiftKey);
  } else if (key.key === "Enter" && (key.ctrlKey || key.metaKey)) {
    key.preventDefault();
    if (!key.repeat) form.requestSubmit(form.querySelector("[value=test]"));
  } else if (key.key === "Enter" && bare && !key.shiftKey) {
    key.preventDefault();
    const before = code.value.slice(0, code.selectionStart);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    put(code.selectionStart, code.selectionEnd, "\n" + line.match(/^[ \t]*/)[0] + (/[:{(\[]$/.test(line) ? " ".repeat(WIDTH) : ""));
  }
  if (key.key !== "Shift") leaving = key.key === "Escape";
});
code.addEventListener("blur", () => { leaving = false; });
code.addEventListener("scroll", () => { lines.scrollTop = code.scrollTop; });
code.addEventListener("input", () => {
  edited();
  clearTimeout(waiting);
  waiting = setTimeout(keep, 300);
});
addEventListener("pagehide", keep);
again.addEventListener("click", () => put(0, code.value.length, template));
file.addEventListener("change", async () => {
  if (!file.files.length) return;
  form.elements.namedItem("name").value = file.files[0].name;
  const text = await file.files[0].text();
  // What is no text stays a file.
  if (text.includes("\ufffd") || text.includes("\0")) return;
  put(0, code.value.length, text.replaceAll("\r\n", "\n"));
  file.value = "";
});

function say(text, bad = false) {
  state.textContent = text;
  state.classList.toggle("bad", bad);
}

// The same part of the submission's page, one heading lower.
async function show(place) {
  const answer = await fetch(place);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = page.getElementById("result");
  if (!answer.ok || !part || place !== path) return;
  for (const heading of part.querySelectorAll("h1")) {
    const lower = document.createElement("h2");
    lower.className = heading.className;
    lower.textContent = heading.textContent;
    heading.replaceWith(lower);
  }
  result.replaceChildren(...part.childNodes);
  result.ariaBusy = null;
}

function follow(place) {
  path = place;
  source?.close();
  const events = source = new EventSource(place + "/events");
  events.addEventListener("progress", (message) => {
    const told = JSON.parse(message.data);
    say(told.text);
    if (told.done) {
      events.close();
      show(place);
    }
  });
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) setTimeout(() => { if (events === source) follow(place); }, 5000);
  });
}

// Neither the second click of two sends anything again, nor a held key.
for (const kind of ["click", "keydown"]) form.addEventListener(kind, (event) => { if (event.target.name === "mode" && (event.detail > 1 || (event.repeat && event.key === "Enter"))) event.preventDefault(); });
form.addEventListener("submit", async (sent) => {
  sent.preventDefault();
  if (sending) return;
  sending = true;
  keep();
  const body = new FormData(form, sent.submitter);
  say("sending");
  try {
    const answer = await fetch("/send", {method: "POST", body});
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok) {
      say(page.querySelector("[role=alert]")?.textContent ?? "refused: " + answer.status, true);
      return;
    }
    whole.href = new URL(answer.url).pathname;
    whole.textContent = "The submission's page";
    whole.hidden = false;
    result.ariaBusy = "true";
    follow(whole.pathname);
  } catch {
    say("The server does not answer: try again.", true);
  } finally {
    sending = false;
  }
});

document.getElementById("keys").hidden = false;
code.value = stored(() => localStorage.getItem(draft)) ?? template;
edited();
if (form.dataset.last) {
  path = form.dataset.last;
  follow(path);
}
