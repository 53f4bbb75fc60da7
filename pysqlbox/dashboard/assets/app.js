// Keeps what is marked data-live as fresh as the server's page, and asks before what cannot be undone.
"use strict";

(() => {
  const main = document.querySelector("main[data-every]");
  const lamp = document.querySelector(".live");
  let tag = null;
  let busy = false;
  let answered = Date.now();

  const say = (state, text) => {
    if (!lamp || lamp.dataset.state === state) return;
    lamp.dataset.state = state;
    lamp.classList.toggle("stale", state === "stale");
    lamp.classList.toggle("idle", state === "idle");
    lamp.textContent = text;
  };

  // A part that has the focus, a selection or an opened <details> in it waits until it is left alone.
  const inUse = (part) => {
    const focused = document.activeElement;
    if (focused && focused !== part && part.contains(focused) && focused.matches("input, select, button")) return true;
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode)) return true;
    return part.querySelector("details[open]") !== null;
  };

  const replace = (part, fresh) => {
    const focused = document.activeElement;
    const link = part.contains(focused) ? focused.getAttribute("href") : null;
    const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll(".scroll").forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
    if (link !== null) {
      const again = [...part.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === link);
      if (again) again.focus({ preventScroll: true });
    }
  };

  // Put what differs in place; false if something that is in use was left as it is.
  const take = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    let whole = true;
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
      if (!fresh || fresh.innerHTML === part.innerHTML) continue;
      if (inUse(part)) whole = false;
      else replace(part, fresh);
    }
    const next = page.querySelector("main[data-every]");
    if (next) main.dataset.every = next.dataset.every;
    return whole;
  };
  const every = () => Number(main.dataset.every);

  // The server sends the page's main part whenever it has changed, as long as the tab is in view: browsers open only
  // a few connections to one address.
  let source = null;
  let waiting = null;
  const unlisten = () => {
    if (source) source.close();
    source = null;
  };
  const listen = () => {
    const stream = new EventSource(location.href);
    source = stream;
    stream.addEventListener("open", () => say("live", "live"));
    stream.addEventListener("page", (event) => {
      say("live", "live");
      waiting = take(event.data) ? null : event.data;
    });
    stream.addEventListener("away", () => say("stale", "no answer"));
    stream.addEventListener("over", (event) => {
      unlisten();
      if (!event.data.startsWith("<")) {
        location.reload(); // it is not there any more, or whoever looks is not let in
        return;
      }
      waiting = take(event.data) ? null : event.data;
      say("idle", "over");
    });
    stream.addEventListener("error", () => {
      if (stream.readyState === EventSource.CLOSED) {
        unlisten();
        poll(); // too many streams, or something in between that does not let them through
      } else say("stale", "no answer");
    });
  };
  setInterval(() => { if (waiting !== null && take(waiting)) waiting = null; }, 1000);

  // Where there are no streams the page is asked for again and again.
  let polls = false;
  const refresh = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const headers = { "x-pysqlbox-live": "1" };
      if (tag) headers["if-none-match"] = tag;
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "manual" });
      if (answer.status >= 400 && answer.status < 500) {
        location.reload();
        return;
      }
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(String(answer.status));
        if (!document.querySelector("[data-live]")) {
          location.reload(); // what could not be shown can be now
          return;
        }
        tag = take(await answer.text()) ? answer.headers.get("etag") : null;
      }
      answered = Date.now();
      say("live", "live");
    } catch {
      if (Date.now() - answered > 5000) say("stale", "no answer");
    } finally {
      busy = false;
    }
  };
  const poll = () => {
    polls = true;
    if (every() > 0) setTimeout(async () => { await refresh(); poll(); }, 1000 * every());
    else say("idle", "over");
  };

  if (main && every() > 0) {
    const streams = "EventSource" in window && document.querySelector("[data-live]") !== null;
    if (!streams) poll();
    else if (!document.hidden) listen();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        unlisten();
        say("idle", "paused");
      } else if (polls) refresh();
      else if (every() > 0 && !source) listen();
    });
    window.addEventListener("pagehide", unlisten);
    window.addEventListener("pageshow", (event) => { if (event.persisted && streams && !polls && every() > 0 && !source) listen(); });
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const question = form.dataset.confirm;
    if (question && !window.confirm(question)) {
      event.preventDefault();
      return;
    }
    // No second click while the first is under way.
    if (form.method === "post") setTimeout(() => form.querySelectorAll("button").forEach((each) => { each.disabled = true; }));
  });
  window.addEventListener("pageshow", () => document.querySelectorAll("form button").forEach((each) => { each.disabled = false; }));

  // Arrows and letters walk through a closed list, so by keyboard it is Enter that goes there.
  let walked = null;
  document.addEventListener("pointerdown", () => { walked = null; });
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-submit]") && event.target !== walked) event.target.form.requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (!event.target.matches("select[data-submit]")) return;
    if (event.key === "Enter" && walked === event.target) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
    walked = event.target;
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const field = document.querySelector("input[data-find]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  });
})();
