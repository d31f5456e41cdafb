"use strict";
// Draws the report's tables and charts from the rows in the page, and again whenever a filter changes.
// Every string from a campaign reaches the page as text, never as markup.
const report = JSON.parse(document.getElementById("report").textContent);
const BARS = 40; // cells of a chart with a bar a cell
const FILTERS = report.filters;
const state = { sort: {}, shown: {} };
const views = {};

function rowsOf(table) {
  const names = Object.keys(table.data);
  const columns = names.map((name) => table.data[name]);
  const length = columns.length ? (columns[0].places || columns[0]).length : 0;
  const rows = new Array(length);
  for (let i = 0; i < length; i++) {
    const row = {};
    names.forEach((name, n) => { row[name] = columns[n].places ? columns[n].values[columns[n].places[i]] : columns[n][i]; });
    rows[i] = row;
  }
  return rows;
}

const all = Object.fromEntries(Object.entries(report.tables).map(([name, table]) => [name, rowsOf(table)]));

function picked(rows) {
  const wanted = FILTERS.map((name) => [name, document.getElementById("filter-" + name).value]).filter(([, v]) => v);
  return rows.filter((row) => wanted.every(([name, value]) => {
    const found = `filter ${name}` in row ? row[`filter ${name}`] : row[name];
    return found === undefined || String(found) === value;
  }));
}

function words(value, digits) {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return digits === null ? String(value) : value.toFixed(digits);
  return Array.isArray(value) ? value.join(" ") : String(value);
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function drawTable(name) {
  const place = document.getElementById("table-" + name);
  if (!place) return;
  const { columns, first } = report.tables[name];
  const rows = picked(all[name]);
  const order = state.sort[name];
  if (order) {
    rows.sort((a, b) => {
      const [x, y] = [a[order.by], b[order.by]];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1; // what was not measured comes last, either way
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : 1) * order.way;
    });
  }
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const column of columns) {
    const title = element("th", undefined, column.digits !== null ? "number" : "");
    const button = element("button", column.title + (order && order.by === column.name ? (order.way > 0 ? " ↑" : " ↓") : ""));
    button.addEventListener("click", () => {
      const same = order && order.by === column.name;
      state.sort[name] = { by: column.name, way: same ? -order.way : column.digits !== null ? -1 : 1 };
      drawTable(name);
    });
    title.append(button);
    head.append(title);
  }
  const body = table.createTBody();
  const limit = state.shown[name] || first;
  for (const row of rows.slice(0, limit)) {
    const line = body.insertRow();
    for (const column of columns) {
      const text = words(row[column.name], column.digits);
      const cell = line.insertCell();
      if (column.name === "verdict") cell.append(element("span", text, "verdict " + text.replace(/[^a-z_]/g, "")));
      else cell.textContent = text;
      if (column.digits !== null) cell.className = "number";
      else if (text.length > 48) cell.className = "long";
    }
  }
  const wide = element("div", undefined, "wide");
  wide.append(table);
  place.replaceChildren(wide);
  if (rows.length > limit) {
    const more = element("button", `show more (${limit} of ${rows.length})`, "more");
    more.addEventListener("click", () => { state.shown[name] = limit + 500; drawTable(name); });
    place.append(more);
  }
}

function rowsFor(chart) {
  let rows = picked(all[chart.rows]).filter((row) => row[chart.y] !== null); // as of a card that tells no power
  if (chart.scenario) rows = rows.filter((row) => row.scenario === chart.scenario);
  if (chart.one_cell) {
    const one = document.getElementById("one-cell").value;
    rows = rows.filter((row) => oneCell(row) === one);
  }
  if (chart.rows === "cells") rows = rows.slice(0, BARS);
  return rows.map((row) => ({ ...row })); // Vega writes into the rows that it is given
}

async function drawChart(chart) {
  const place = document.getElementById("chart-" + chart.name);
  const rows = rowsFor(chart);
  if (!views[chart.name]) {
    const spec = { ...chart.spec, datasets: { [chart.rows]: rows } };
    views[chart.name] = (await vegaEmbed(place, spec, { actions: false, renderer: "canvas" })).view;
  } else {
    await views[chart.name].data(chart.rows, rows).resize().runAsync();
  }
  place.dataset.rows = rows.length;
}

// A chart is drawn once the reader comes near it, and again there after a filter has changed.
const charts = Object.fromEntries(report.charts.map((chart) => ["chart-" + chart.name, chart]));
const near = new Set();
let drawing = Promise.resolve(); // one after the other: a view must not be asked for twice at once
function drawNear() {
  for (const place of near) {
    if (place.dataset.rows !== undefined) continue;
    place.dataset.rows = "";
    drawing = drawing.then(() => drawChart(charts[place.id]));
  }
  return drawing;
}
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) near.add(target); else near.delete(target);
  }
  drawNear();
}, { rootMargin: "200px" });

function redraw(chosen) {
  for (const chart of chosen) delete document.getElementById("chart-" + chart.name).dataset.rows;
  return drawNear();
}

function oneCell(row) { return row.gpu === null ? row.cell : `${row.cell} on ${row.gpu}`; }

function offerCells() {
  const select = document.getElementById("one-cell");
  if (!select) return;
  const names = [...new Set(picked(all.points).map(oneCell))];
  const kept = [select.value, ...report.winners].find((name) => names.includes(name));
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.length) select.value = kept || names[0];
}

async function draw() {
  const chosen = Object.fromEntries(FILTERS.map((name) => [name, document.getElementById("filter-" + name).value]));
  for (const answer of document.querySelectorAll("[data-model]")) {
    const { model, gpu } = answer.dataset;
    answer.hidden = (chosen.model && chosen.model !== model) || (chosen.gpu && chosen.gpu !== gpu);
  }
  const points = picked(all.points).length;
  const cells = picked(all.cells).length;
  document.getElementById("count").textContent =
    `${cells} of ${all.cells.length} cells, ${points} of ${all.points.length} points` +
    (cells > BARS ? `; charts with a bar a cell show the first ${BARS}` : "");
  offerCells();
  Object.keys(report.tables).forEach(drawTable);
  await redraw(report.charts);
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1);
}

for (const name of FILTERS) {
  const select = document.getElementById("filter-" + name);
  const values = [...new Set([...all.cells, ...all.points].map((row) => row[name]))].filter((value) => value !== null);
  select.append(new Option("all", ""), ...values.sort().map((value) => new Option(value, value)));
  select.parentElement.hidden = values.length < 2; // there is nothing to pick
  if (name === "model" && report.first_model && values.length > 1) select.value = report.first_model;
  select.addEventListener("change", draw);
}
const one = document.getElementById("one-cell");
if (one) one.addEventListener("change", () => redraw(report.charts.filter((chart) => chart.one_cell)));
for (const id of Object.keys(charts)) {
  const place = document.getElementById(id);
  const seen = place.getBoundingClientRect();
  if (seen.top < innerHeight + 200) near.add(place); // the observer's first word comes only after the first drawing
  watch.observe(place);
}
draw();
