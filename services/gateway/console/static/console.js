// The console without a build step: keyboard shortcuts, the state of the live connection, and care for half-written reasons.
"use strict";

const byId = (id) => document.getElementById(id);
const KEYS = "toolmesh.console.shortcuts";

function showLive(state, text) {
  const live = byId("live");
  if (!live) return;
  live.dataset.state = state;
  live.textContent = text;
}

function showCount() {
  const list = byId("tickets");
  if (!list || list.dataset.view !== "approver") return;
  const count = Number(list.dataset.count);
  document.title = (count ? `(${count}${list.dataset.more ? "+" : ""}) ` : "") + "Approvals · Toolmesh";
}

document.addEventListener("htmx:sseOpen", () => showLive("on", "Live"));
document.addEventListener("htmx:sseError", () => showLive("off", "Updates every half minute"));
document.addEventListener("htmx:afterSettle", showCount);
showCount();

// A reason that is being written is not thrown away: the page says that the ticket changed instead.
document.addEventListener("htmx:beforeRequest", (event) => {
  const reason = byId("reason");
  if (event.target.id === "ticket" && reason && (reason.value || reason === document.activeElement)) {
    event.preventDefault();
    fetch(event.target.getAttribute("hx-get"), { headers: { "HX-Request": "true" } })
      .then((answer) => answer.text())
      .then((text) => {
        const now = new DOMParser().parseFromString(text, "text/html").querySelector("[name=etag]");
        const seen = document.querySelector("#decide [name=etag]");
        byId("stale").hidden = Boolean(now && seen && now.value === seen.value);
      });
  }
});

function rows() {
  return Array.from(document.querySelectorAll("#tickets a.row"));
}

function move(step) {
  const all = rows();
  const next = all[Math.min(all.length - 1, Math.max(0, all.indexOf(document.activeElement) + step))];
  if (next) next.focus();
}

const SHORTCUTS = {
  j: () => move(1),
  k: () => move(-1),
  r: () => byId("reason")?.focus(),
  a: () => byId("approve")?.focus(),
  d: () => byId("deny")?.focus(),
  u: () => byId("back")?.click(),
  "?": () => byId("keys")?.showModal(),
};

function shortcutsOn() {
  return localStorage.getItem(KEYS) !== "off";
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const act = SHORTCUTS[event.key];
  if (!act || !shortcutsOn()) return;
  event.preventDefault();
  act();
});

byId("show-keys")?.addEventListener("click", () => byId("keys").showModal());
const toggle = byId("keys-on");
if (toggle) {
  toggle.checked = shortcutsOn();
  toggle.addEventListener("change", () => localStorage.setItem(KEYS, toggle.checked ? "on" : "off"));
}
