// Keeps a page fresh: asks for it again and puts in what has changed of the parts that say data-live, without touching what somebody
// is using. Without this script everything is there all the same, as it was when the page was loaded.
"use strict";

(() => {
  const SECONDS = Number(document.documentElement.dataset.refresh);
  const PICTURE_SECONDS = 60;
  const state = document.getElementById("live-state");
  const button = document.getElementById("live-switch");
  const parts = () => document.querySelectorAll("[data-live]");
  let isHeld = false;
  let hasFailed = false;
  let picturesAt = Date.now();

  if (!parts().length || !SECONDS) return;

  function say(words) {
    // Only what is new: a screen reader reads every change.
    if (state.textContent !== words) state.textContent = words;
  }

  // What had the focus, so that its successor gets it.
  function marker(part) {
    const focused = document.activeElement;
    if (!focused || !part.contains(focused)) return null;
    const all = [...part.querySelectorAll("a, button, summary, pre")];
    const href = focused.getAttribute("href");
    return { href, place: all.indexOf(focused) };
  }

  function refocus(part, mark) {
    const all = [...part.querySelectorAll("a, button, summary, pre")];
    const same = mark.href && all.find((each) => each.getAttribute("href") === mark.href);
    (same || all[mark.place])?.focus({ preventScroll: true });
  }

  function isInUse(part) {
    const selection = document.getSelection();
    const isSelecting = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    const isSelected = part.querySelector("input[type=checkbox]:checked");
    return isSelecting || isSelected || (document.activeElement?.matches("input, textarea, select") && part.contains(document.activeElement));
  }

  function put(fresh) {
    for (const part of parts()) {
      const next = fresh.getElementById(part.id);
      if (!next || next.innerHTML === part.dataset.shown || isInUse(part)) continue;
      const mark = marker(part);
      const open = new Set([...part.querySelectorAll("details[open][id]")].map((each) => each.id));
      const shown = next.innerHTML;
      part.replaceChildren(...[...next.childNodes].map((each) => document.importNode(each, true)));
      part.dataset.shown = shown;
      for (const each of part.querySelectorAll("details[id]")) each.open = open.has(each.id);
      if (mark) refocus(part, mark);
    }
  }

  function freshenPictures() {
    if (Date.now() - picturesAt < PICTURE_SECONDS * 1000) return;
    picturesAt = Date.now();
    for (const each of document.querySelectorAll("[data-fresh]")) {
      const name = each.tagName === "IMG" ? "src" : "srcset";
      const address = new URL(each[name], location.href);
      address.searchParams.set("at", Math.floor(picturesAt / 1000));
      each[name] = address.pathname + address.search;
    }
  }

  async function look() {
    if (isHeld || document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: { "X-Spanmq-Live": "1" }, cache: "no-store" });
      if (answer.status === 401) {
        location.reload();
        return;
      }
      if (answer.status === 404) {
        hasFailed = true;
        say("This does not exist any more: these figures are old.");
        return;
      }
      if (!answer.ok) throw new Error(answer.status);
      put(new DOMParser().parseFromString(await answer.text(), "text/html"));
      freshenPictures();
      if (hasFailed) say("These figures are fresh again.");
      hasFailed = false;
    } catch {
      hasFailed = true;
      say("The service does not answer: these figures are old.");
    }
  }

  async function run() {
    await look();
    setTimeout(run, SECONDS * 1000);
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    isHeld = !isHeld;
    button.setAttribute("aria-pressed", String(isHeld));
    if (!isHeld) look();
  });
  document.addEventListener("visibilitychange", look);
  setTimeout(run, SECONDS * 1000);
})();
