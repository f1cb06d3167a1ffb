// What a report does beyond being read: another colour scheme, sorted and filtered tables.
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
  document.querySelectorAll("table.data:has(thead)").forEach(sortable);

  // -- paper
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
}
