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
  }, { rootMargin: "0px 0px -60% 0px" });
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
