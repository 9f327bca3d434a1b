// Keeps a page of cpcmon live: asks for it again every few seconds, and swaps what it says.
// The page is whole without this; nothing here computes a number.
"use strict";

const body = document.body;
const main = document.getElementById("main");
const live = document.getElementById("live");
const said = document.getElementById("said");
const every = Number(body.dataset.every || 5) * 1000;
const patience = 10_000;
// Not location.href: a name and a password in it would make fetch refuse.
const here = location.origin + location.pathname + location.search;
let shown = main.innerHTML;
let title = document.title;
let answered = Date.now();
let timer = null;
let asking = null;

const clock = (at) => new Date(at).toISOString().slice(11, 19) + " UTC";

function tell(state, words) {
  main.classList.toggle("old", state === "lost");
  live.dataset.state = state;
  document.title = state === "lost" ? `? Not live – ${title}` : title;
  // A status that is written again is read out again.
  if (live.textContent !== words) live.textContent = words;
}

const lost = (why) => tell("lost", `${why} What is shown is old: of ${clock(answered)}.`);

// What an element is called over two versions of the page.
function key(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  if (element.dataset.key) return `[data-key="${CSS.escape(element.dataset.key)}"]`;
  if (element.localName === "summary" && element.parentElement) {
    const parent = key(element.parentElement);
    return parent && `${parent} > summary`;
  }
  const link = element.getAttribute("href");
  return link && `a[href="${CSS.escape(link)}"]`;
}

function swap(fresh) {
  const [x, y] = [scrollX, scrollY];
  const focus = main.contains(document.activeElement) ? key(document.activeElement) : null;
  const opened = new Map();
  for (const one of main.querySelectorAll("details")) if (key(one)) opened.set(key(one), one.open);
  const sideways = new Map();
  for (const one of main.querySelectorAll("[data-key]")) if (one.scrollLeft) sideways.set(key(one), one.scrollLeft);
  main.replaceChildren(...document.importNode(fresh, true).childNodes);
  for (const [name, open] of opened) main.querySelector(name)?.toggleAttribute("open", open);
  for (const [name, left] of sideways) main.querySelector(name)?.scrollTo({ left });
  if (focus) (main.querySelector(focus) ?? main).focus({ preventScroll: true });
  scrollTo({ left: x, top: y, behavior: "instant" });
}

function alerts(from) {
  return [...from.querySelectorAll("#firing li")].map((one) => one.textContent);
}

function take(page) {
  const fresh = page.getElementById("main");
  const before = new Set(alerts(document));
  const begun = alerts(page).filter((one) => !before.has(one));
  if (fresh.innerHTML !== shown) {
    swap(fresh);
    shown = fresh.innerHTML;
  }
  title = page.title;
  for (const id of ["firing", "as-of"]) {
    const [old, now] = [document.getElementById(id), page.getElementById(id)];
    if (old && now && old.innerHTML !== now.innerHTML) old.replaceChildren(...document.importNode(now, true).childNodes);
  }
  if (begun.length) said.replaceChildren(begun.map((one) => `${one} began`).join("; "));
}

const TOLD = {
  401: "A name and a password are asked for again: reload the page.",
  404: "This page is gone (404): what it is about may have left the configuration.",
  503: "cpcmon cannot answer now (503): it is busy, starting or stopping.",
};

async function ask() {
  const answer = await fetch(here, { cache: "no-store", credentials: "same-origin", signal: asking.signal });
  if (!answer.ok) return lost(TOLD[answer.status] ?? `cpcmon answered with an error (${answer.status}).`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!page.querySelector('meta[name="generator"][content="cpcmon"]') || !page.getElementById("main"))
    return lost("Another page than cpcmon's came back: reload the page.");
  // Another version answers: its script and style go with its page.
  if (page.body.dataset.mark !== body.dataset.mark) return location.reload();
  answered = Date.now();
  take(page);
  tell("live", `Live, every ${every / 1000} s`);
}

async function turn() {
  clearTimeout(timer);
  if (document.hidden || asking) return;
  // After a sleep of the machine the numbers are old before anything has failed.
  if (Date.now() - answered > 2 * (every + patience)) lost("Nothing was asked for a while.");
  asking = new AbortController();
  const limit = setTimeout(() => asking.abort(), patience);
  try {
    await ask();
  } catch {
    tell("lost", `cpcmon has not answered since ${clock(answered)}. What is shown is old.`);
  }
  clearTimeout(limit);
  asking = null;
  timer = setTimeout(turn, every);
}

document.addEventListener("visibilitychange", () => document.hidden || turn());
addEventListener("online", () => turn());
tell("live", `Live, every ${every / 1000} s`);
timer = setTimeout(turn, every);
