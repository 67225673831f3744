"use strict";
const flambeau = {
  cache: new Map(),
  // What stands in the page under a name, parsed when it is first asked for.
  data(name) {
    if (!this.cache.has(name)) {
      const element = document.getElementById(`data-${name}`);
      this.cache.set(name, element ? JSON.parse(element.textContent) : null);
    }
    return this.cache.get(name);
  },
};

// The section in view is marked in the list of sections.
(() => {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.isIntersecting ? seen.add(entry.target.id) : seen.delete(entry.target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) id === first ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
    // On narrow screens the list is a row that scrolls.
    const list = document.querySelector("nav ul");
    if (first && list.scrollWidth > list.clientWidth) list.scrollTo({ left: links.get(first).offsetLeft - 40 });
  }, { rootMargin: "-15% 0px -80% 0px" });
  for (const section of document.querySelectorAll("main > section")) watch.observe(section);
})();

// Tables are sorted by a click on a heading: by data-v where a cell has one, else by its text.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const number = [...table.tBodies[0].rows].every((row) => value(row) === "" || !Number.isNaN(Number(value(row))));
      const compare = (a, b) => (number ? Number(value(a)) - Number(value(b)) : value(a).localeCompare(value(b)));
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => (down ? -compare(a, b) : compare(a, b))));
    });
  });
}

// Rows, or whatever else a list has, that do not hold a text are left out.
for (const input of document.querySelectorAll("input[data-filters]")) {
  const controls = input.closest(".controls");
  const told = controls.querySelector("[aria-live]");
  const rows = () => (input.dataset.filters === "next" ? [...controls.nextElementSibling.querySelectorAll("tbody tr, li")] : [...document.getElementById(input.dataset.filters).children]);
  const all = told.textContent;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    const every = rows();
    for (const row of every) {
      row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    told.textContent = wanted === "" ? all : `${shown} of ${every.length}`;
  });
}

// Pictures: one part of each can be reached with Tab, the others from there with the arrow keys; what the one under the pointer or the focus says stands below.
for (const picture of document.querySelectorAll("svg[role=group]")) {
  const items = [...picture.querySelectorAll(".item")];
  if (!items.length) continue;
  const told = document.createElement("p");
  told.className = "faint told";
  const pan = picture.closest("figure.pan");
  if (pan) pan.scrollLeft = (pan.scrollWidth - pan.clientWidth) / 2;
  told.setAttribute("aria-live", "polite");
  told.textContent = "Point at a part, or tab to the picture and use the arrow keys.";
  (picture.closest("figure") ?? picture).after(told);
  const tell = (item) => {
    told.textContent = item.querySelector("title").textContent;
    for (const path of picture.querySelectorAll("path[data-from]")) path.classList.toggle("lit", item.dataset.box !== undefined && (path.dataset.from === item.dataset.box || path.dataset.to === item.dataset.box));
  };
  items.forEach((item, at) => {
    item.setAttribute("tabindex", at ? "-1" : "0");
    item.addEventListener("pointerenter", () => tell(item));
    item.addEventListener("focus", () => tell(item));
    item.addEventListener("click", () => item.focus());
    item.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      if (!items[to]) return;
      item.setAttribute("tabindex", "-1");
      items[to].setAttribute("tabindex", "0");
      items[to].focus();
    });
  });
}

// Lines of all stages side by side: those that belong to the line under the pointer, or to the one that is chosen, are marked.
for (const root of document.querySelectorAll("[data-panes]")) {
  const HEIGHT = 17;
  const choice = root.querySelector("select");
  const shelf = root.querySelector(".panes");
  const boxes = root.querySelector(".boxes");
  const told = root.querySelector("[aria-live]");
  const search = root.querySelector("input[type=search]");
  // Of nine stages, those that differ most from each other are shown at first: three on a narrow screen.
  const away = matchMedia("(max-width: 820px)").matches ? ["bytecode", "captured", "loops", "kernels", "kernel_ir", "program"] : ["bytecode", "kernels", "kernel_ir"];
  let panes = [];
  let pinned = null;

  const linked = (keys, wanted) => keys.some((key) => wanted.has(key));
  const paint = (pane) => {
    const first = Math.max(0, Math.floor(pane.body.scrollTop / HEIGHT) - 20);
    const last = Math.min(pane.lines.length, Math.ceil((pane.body.scrollTop + pane.body.clientHeight) / HEIGHT) + 20);
    const rows = document.createDocumentFragment();
    for (let at = first; at < last; at++) {
      const row = document.createElement("div");
      row.className = `row ${pane.keys[at].length ? "linked" : ""} ${pane.marks.get(at) ?? ""} ${pane.hits.has(at) ? "hit" : ""}`;
      row.style.top = `${at * HEIGHT}px`;
      row.dataset.at = at;
      const number = document.createElement("span");
      number.className = "no";
      number.textContent = at + 1;
      // The source has its own numbers.
      pane.name === "source" ? row.append(pane.lines[at]) : row.append(number, pane.lines[at]);
      rows.append(row);
    }
    pane.rows.replaceChildren(rows);
  };
  const mark = (from, at, follow) => {
    const wanted = new Set(at === null ? [] : from.keys[at]);
    const counts = [];
    panes.forEach((pane, order) => {
      pane.marks = new Map();
      let first = null;
      if (wanted.size) pane.keys.forEach((keys, line) => {
        if (!linked(keys, wanted)) return;
        first ??= line;
        pane.marks.set(line, order < from.order ? "from" : order > from.order ? "became" : "from");
      });
      if (pane === from && at !== null) pane.marks.set(at, "here");
      if (pane !== from && pane.marks.size) counts.push(`${pane.marks.size} in ${pane.title}`);
      if (follow && first !== null && pane !== from) pane.body.scrollTop = Math.max(0, first * HEIGHT - pane.body.clientHeight / 3);
      paint(pane);
    });
    if (at === null || !follow) return;
    const line = from.name === "source" ? parseInt(from.lines[at]) || "" : at + 1;
    told.textContent = counts.length ? `Line ${line} of ${from.title}: ${counts.join(", ")}` : `Line ${line} of ${from.title} is about no operation`;
  };
  const pin = (pane, at) => {
    pinned = { pane, at };
    if ((at - 1) * HEIGHT < pane.body.scrollTop) pane.body.scrollTop = (at - 1) * HEIGHT;
    if ((at + 2) * HEIGHT > pane.body.scrollTop + pane.body.clientHeight) pane.body.scrollTop = (at + 2) * HEIGHT - pane.body.clientHeight;
    mark(pane, at, true);
  };
  const build = () => {
    pinned = null;
    panes = (flambeau.data(choice.value) ?? []).map((made, order) => ({ ...made, order, marks: new Map(), hits: new Set() }));
    shelf.replaceChildren();
    boxes.replaceChildren();
    told.textContent = "";
    for (const pane of panes) {
      const frame = document.createElement("div");
      frame.className = "pane";
      const head = document.createElement("h4");
      head.textContent = pane.title;
      const count = document.createElement("span");
      count.className = "count";
      count.textContent = `${pane.lines.length} lines`;
      head.append(count);
      pane.body = document.createElement("div");
      pane.body.className = "body";
      pane.body.tabIndex = 0;
      pane.body.setAttribute("role", "region");
      pane.body.setAttribute("aria-label", `${pane.title}: up and down choose a line, left and right another stage`);
      pane.rows = document.createElement("div");
      pane.rows.className = "rows";
      pane.rows.style.height = `${pane.lines.length * HEIGHT}px`;
      const longest = pane.lines.reduce((most, line) => Math.max(most, line.length), 0);
      pane.rows.style.width = `${longest + 8}ch`;
      pane.body.append(pane.rows);
      frame.append(head, pane.body);
      shelf.append(frame);
      const box = document.createElement("label");
      const input = document.createElement("input");
      input.type = "checkbox";
      input.checked = !away.includes(pane.name);
      frame.hidden = !input.checked;
      input.addEventListener("change", () => { frame.hidden = !input.checked; paint(pane); });
      box.append(input, ` ${pane.title}`);
      boxes.append(box);
      pane.frame = frame;
      const lineOf = (event) => { const row = event.target.closest(".row"); return row ? Number(row.dataset.at) : null; };
      pane.body.addEventListener("scroll", () => paint(pane), { passive: true });
      pane.body.addEventListener("mousemove", (event) => { const at = lineOf(event); if (!pinned && at !== null && !(pane.marks.get(at) === "here")) mark(pane, at, false); });
      pane.body.addEventListener("mouseleave", () => { if (!pinned) mark(pane, null, false); });
      pane.body.addEventListener("click", (event) => {
        const at = lineOf(event);
        if (at === null) return;
        if (pinned && pinned.pane === pane && pinned.at === at) { pinned = null; mark(pane, null, false); told.textContent = ""; } else pin(pane, at);
      });
      pane.body.addEventListener("keydown", (event) => {
        const at = pinned && pinned.pane === pane ? pinned.at : -1;
        const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 };
        if (event.key in steps) {
          pin(pane, Math.min(Math.max(at + steps[event.key], 0), pane.lines.length - 1));
        } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
          const shown = panes.filter((other) => !other.frame.hidden);
          const next = shown[shown.indexOf(pane) + (event.key === "ArrowRight" ? 1 : -1)];
          if (!next) return;
          const lines = [...next.marks.keys()].sort((a, b) => a - b);
          next.body.focus();
          pin(next, lines[0] ?? 0);
        } else if (event.key === "Escape") {
          pinned = null;
          mark(pane, null, false);
        } else return;
        event.preventDefault();
      });
    }
    find(0);
  };
  // Lines that hold a text; `turn` counts how often one went on to the next.
  let turn = 0;
  const find = (now) => {
    turn = now;
    const wanted = search.value.toLowerCase();
    const counts = [];
    for (const pane of panes) {
      const lines = [...pane.lines.keys()].filter((at) => wanted !== "" && pane.lines[at].toLowerCase().includes(wanted));
      pane.hits = new Set(lines);
      if (lines.length) {
        counts.push(`${lines.length} in ${pane.title}`);
        pane.body.scrollTop = Math.max(0, lines[turn % lines.length] * HEIGHT - pane.body.clientHeight / 3);
      }
      paint(pane);
    }
    if (wanted !== "") told.textContent = counts.length ? `${search.value}: ${counts.join(", ")}; Enter goes on to the next` : `${search.value}: nowhere`;
  };
  search.addEventListener("input", () => find(0));
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); find(turn + 1); } });
  choice.addEventListener("change", build);
  new IntersectionObserver((entries, watch) => {
    if (entries.some((entry) => entry.isIntersecting)) { watch.disconnect(); build(); }
  }, { rootMargin: "300px" }).observe(root);
  window.addEventListener("resize", () => panes.forEach(paint));
}

// One picture or table of several is shown at a time.
for (const choice of document.querySelectorAll("select[data-shows]")) {
  const show = () => {
    for (const part of document.querySelectorAll(`[data-part="${choice.dataset.shows}"]`)) part.hidden = part.dataset.value !== choice.value;
  };
  choice.addEventListener("change", show);
  show();
}
