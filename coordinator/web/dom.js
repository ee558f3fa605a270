// Elements, and numbers as text with their units. Text only ever becomes text nodes.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

export function show(node, visible = true) {
  node.hidden = !visible;
}

// Sets the text only where it differs, so that nothing is read aloud twice.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function number(value, digits = 1) {
  if (!Number.isFinite(value)) return "–";
  return value.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

export const count = (value) => number(value, 0);

export function ms(value) {
  if (!Number.isFinite(value)) return "–";
  if (value >= 10000) return `${number(value / 1000, 1)} s`;
  return `${number(value, value >= 100 ? 0 : value >= 10 ? 1 : 2)} ms`;
}

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = share * 100;
  if (value > 0 && value < 0.005) return "under 0.01 %";
  return `${number(value, value >= 99.95 || value === 0 ? 0 : value >= 1 ? 1 : 2)} %`;
}

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
