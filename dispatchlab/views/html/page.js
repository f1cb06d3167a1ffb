// What a report does beyond being read: another colour scheme, sorted and filtered tables, a picture that answers.
"use strict";
{
  const root = document.documentElement;
  const make = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // -- light and dark
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const scheme = make("button", "", { type: "button", class: "switch" });
  const name = () => { scheme.textContent = isDark() ? "Light colours" : "Dark colours"; };
  scheme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  name();
  document.querySelector("header").append(scheme);

  // -- tables
  const order = new Intl.Collator("en", { numeric: true });
  const valueOf = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const number = (count) => count.toLocaleString("en");
  const FEW = 6; // rows that nobody needs to filter
  const sortable = (table) => {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!head.textContent) return;
      table.style.setProperty(`--head-${column + 1}`, JSON.stringify(head.textContent));
      const button = make("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sorted = [...rows].sort((one, other) => order.compare(valueOf(one, column), valueOf(other, column)));
        body.append(...(down ? sorted.reverse() : sorted));
      });
    });
    if (rows.length < FEW) return;
    const tools = make("div", "", { class: "tools" });
    const search = make("input", "", { type: "search", placeholder: "Filter rows" });
    search.setAttribute("aria-label", `Filter: ${table.caption?.textContent ?? "rows"}`);
    const count = make("span", "", { role: "status" });
    const texts = rows.map((row) => row.textContent.toLowerCase());
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(" ").filter(Boolean);
      let shown = 0;
      rows.forEach((row, at) => {
        row.hidden = !words.every((word) => texts[at].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = words.length ? `${number(shown)} of ${number(rows.length)} rows` : "";
    });
    tools.append(search, count);
    table.parentElement.before(tools);
  };
  const pristine = new Map([...document.querySelectorAll("[id*='-table-']")].map((each) => [each.id, each.cloneNode(true)]));
  document.querySelectorAll("table.data").forEach(sortable);

  // -- pictures
  for (const picture of document.querySelectorAll("svg.states")) {
    const boxes = [...picture.querySelectorAll("a.box")], lines = [...picture.querySelectorAll("g.line[data-from]")];
    const near = (box) => {
      picture.classList.toggle("pointed", box !== null);
      for (const each of [...boxes, ...lines]) each.classList.remove("near");
      if (box === null) return;
      const own = box.dataset.box, beside = new Set([own]);
      for (const line of lines) {
        const { from, to } = line.dataset;
        if (from !== own && to !== own) continue;
        line.classList.add("near");
        beside.add(from).add(to);
      }
      for (const each of boxes) if (beside.has(each.dataset.box)) each.classList.add("near");
    };
    const panel = make("div", "", { class: "panel", role: "region", "aria-label": "The state that was clicked" });
    const hint = "Point at a state to see its steps; click it to see its dispatch table here.";
    panel.append(make("p", hint, { class: "quiet" }));
    picture.closest(".picture").after(panel);
    for (const box of boxes) {
      box.addEventListener("mouseenter", () => near(box));
      box.addEventListener("mouseleave", () => near(null));
      box.addEventListener("focus", () => near(box));
      box.addEventListener("blur", () => near(null));
      box.addEventListener("click", (event) => {
        event.preventDefault();
        for (const other of boxes) other.removeAttribute("aria-current");
        box.setAttribute("aria-current", "true");
        const shown = pristine.get(box.getAttribute("href").slice(1)).cloneNode(true);
        const about = box.querySelector("title").textContent;
        panel.replaceChildren(make("p", "Registered here:"), make("pre", about), ...shown.childNodes);
        panel.querySelectorAll("table.data").forEach(sortable);
      });
    }
  }

  // -- paper
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
}
