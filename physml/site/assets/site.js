// Filter and sort of tables whose rows are in the page, and the search over all cells. The state is in the URL.
"use strict";

const state = () => new URLSearchParams(location.search);

function keep(name, value) {
  const now = state();
  if (value) now.set(name, value); else now.delete(name);
  const query = now.toString();
  history.replaceState(null, "", location.pathname + (query ? "?" + query : "") + location.hash);
}

function control(form, name, changed) {
  const field = form.elements[name];
  if (!field) return;
  field.value = state().get(name) || "";
  if (field.value === "" && field.tagName === "SELECT") field.selectedIndex = 0;
  field.addEventListener("input", () => { keep(name, field.value); changed(); });
}

// ---- a table in the page: form[data-for=ID], rows with data-kind

function filtered(form) {
  const rows = [...document.querySelectorAll("table[data-filtered] > tbody > tr[data-kind]")];
  const count = form.querySelector("output");
  const show = () => {
    const kind = form.elements.kind.value;
    const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = (kind && row.dataset.kind !== kind) || !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length} rows`;
  };
  for (const name of ["q", "kind"]) control(form, name, show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

// A cell that begins with a number, after a sign of its outcome, is that number; a dash has no value.
const shown = (text) => {
  const number = text.match(/^[^\w.-]*(-?\d[\d,]*\.?\d*)/);
  return number ? number[1].replaceAll(",", "") : text === "–" ? "" : text;
};

function sortable(head) {
  const table = head.closest("table"), body = table.tBodies[0], place = head.cellIndex;
  head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.cells[place].dataset.value ?? shown(row.cells[place].textContent.trim());
    const rows = [...body.rows];
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");  // what has no value stays last
      const by = isNaN(x) || isNaN(y) ? x.localeCompare(y, "en", { numeric: true }) : x - y;
      return up ? by : -by;
    });
    body.append(...rows);
  });
}

// ---- the search: CELLS is [page, table, row, column, published, ours, outcome, kind, paper, words], those
// with runs first; PAGES is [page, title, kind, words]

const plain = (text) => text.toLowerCase().replace(/[_-]/g, " ");

function searched(form, cells, pages) {
  const titles = Object.fromEntries(pages.map((page) => [page[1].split(":")[0], page[1] + " " + page[3]]));
  const texts = new Map(cells.map((cell) => [cell, plain([...cell.slice(1, 7), cell[9], titles[cell[1]]].join(" "))]));
  const others = document.querySelector("#pages");
  const root = form.dataset.root, body = document.querySelector("#found tbody");
  const count = form.querySelector("output"), most = 200;
  const show = () => {
    const chosen = { kind: form.elements.kind.value, paper: form.elements.paper.value };
    const words = form.elements.q.value.split(/\s+/).filter(Boolean).map(plain);
    const fits = (text) => words.every((word) => text.includes(word));
    const wanted = words.length && !chosen.kind && !chosen.paper;
    const near = pages.filter((page) => wanted && fits(plain(page.slice(1).join(" "))));
    others.replaceChildren(...near.slice(0, 12).map((page) => {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = root + page[0];
      link.textContent = page[1];
      item.append(`${page[2]} `, link);
      return item;
    }));
    const found = cells.filter((cell) =>
      (!chosen.kind || cell[7] === chosen.kind) && (!chosen.paper || cell[8] === chosen.paper) &&
      fits(texts.get(cell)));
    count.textContent = `${found.length} of ${cells.length} cells` +
      (found.length > most ? `; the first ${most} are shown` : "");
    body.replaceChildren(...found.slice(0, most).map((cell) => {
      const row = document.createElement("tr");
      const first = document.createElement("th");
      first.scope = "row";
      const link = document.createElement("a");
      link.href = root + cell[0];
      link.textContent = cell[2];
      first.append(link);
      row.append(first);
      ["table", "column", "published", "ours", "outcome"].forEach((label, i) => {
        const data = document.createElement("td");
        data.dataset.label = label;
        data.textContent = cell[[1, 3, 4, 5, 6][i]];
        row.append(data);
      });
      return row;
    }));
  };
  for (const name of ["q", "kind", "paper"]) control(form, name, show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

document.querySelectorAll("form[data-filter]").forEach(filtered);
document.querySelectorAll("th[data-sort]").forEach(sortable);
document.querySelectorAll("form[data-search]").forEach((form) => searched(form, window.CELLS || [], window.PAGES || []));
document.querySelectorAll("[data-js]").forEach((part) => { part.hidden = false; });
