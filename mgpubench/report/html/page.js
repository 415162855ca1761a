"use strict";
(() => {
  const table = document.getElementById("runs-table");
  const filter = document.getElementById("runs-filter");
  const count = document.getElementById("runs-count");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const texts = rows.map((row) => row.textContent.toLowerCase());

  const value = (row, column, isNumber) => {
    const text = row.cells[column].textContent;
    return isNumber ? parseFloat(text) : text;
  };

  // Unknown values stay at the end in both directions.
  const { compare: compareTexts } = new Intl.Collator(undefined, { numeric: true });
  const compare = (a, b, isNumber) => (isNumber ? a - b : compareTexts(a, b));

  const sort = (heading, column) => {
    const isNumber = heading.classList.contains("number");
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const isUnknown = (key) => key === "-" || Number.isNaN(key);
    const keyed = rows.map((row) => [value(row, column, isNumber), row]);
    keyed.sort(([a], [b]) => {
      if (isUnknown(a) || isUnknown(b)) return isUnknown(a) - isUnknown(b);
      return ascending ? compare(a, b, isNumber) : compare(b, a, isNumber);
    });
    body.replaceChildren(...keyed.map(([, row]) => row));
  };

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, number) => {
      row.hidden = !words.every((word) => texts[number].includes(word));
      shown += !row.hidden;
    });
    count.textContent = `${shown} of ${rows.length} runs`;
  };

  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(heading, column));
    heading.append(button);
  });
  filter.addEventListener("input", show);
  document.getElementById("runs-tools").hidden = false;
  show();
})();
