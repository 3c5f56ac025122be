"use strict";
// Shows each state of a leaderboard as the server sends it, marks what is new for some seconds, and counts time down.
const MARKED_MS = 10000;
const AGAIN_MS = 5000;
const live = document.getElementById("live");
const news = document.getElementById("news");
const link = document.getElementById("link");
const marked = new Map();

function keyed(place) {
  return [...place.querySelectorAll("[data-key]")];
}

// When a record came; a place of the ranking has no time.
function time(node) {
  return node.querySelector("time")?.dateTime;
}

function mark(place) {
  for (const node of keyed(place)) {
    node.classList.toggle("new", (marked.get(place.id + node.dataset.key) ?? 0) > Date.now());
  }
}

function shown(message) {
  const state = JSON.parse(message.data);
  const place = document.getElementById(state.id);
  if (!place) return location.reload();
  const before = new Set(keyed(place).map((node) => node.dataset.key));
  const last = keyed(place).map(time).filter(Boolean).sort().pop() ?? "";
  place.innerHTML = state.html;
  // An earlier record comes back when a later one is taken out.
  const fresh = keyed(place).filter((node) => !before.has(node.dataset.key) && !(time(node) <= last));
  for (const node of fresh) marked.set(place.id + node.dataset.key, Date.now() + MARKED_MS);
  const record = fresh.find((node) => node.dataset.key.startsWith("record"));
  if (record) news.textContent = "New record: " + record.textContent.trim().replace(/\s+/g, " ");
  mark(place);
  count();
  setTimeout(() => mark(place), MARKED_MS + 100);
}

function count() {
  for (const place of live.querySelectorAll(".facts time")) {
    const left = Math.floor((Date.parse(place.dateTime) - Date.now()) / 1000);
    if (left < 0) continue;
    const two = (number) => String(Math.floor(number)).padStart(2, "0");
    const days = Math.floor(left / 86400);
    place.textContent = (days ? days + (days === 1 ? " day " : " days ") : "") + two((left / 3600) % 24) + ":" +
      two((left / 60) % 60) + ":" + two(left % 60) + " left";
  }
}

function follow() {
  const source = new EventSource(live.dataset.events);
  source.addEventListener("board", shown);
  source.addEventListener("open", () => { link.textContent = ""; });
  source.addEventListener("error", () => {
    link.textContent = "The connection is lost; trying again.";
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN_MS);
  });
}

count();
setInterval(count, 1000);
follow();
