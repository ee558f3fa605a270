// Starts the page once it is painted: the form is there at once, and the modules come after it. All of
// them are asked for together, not one after the other.

const MODULES = [
  "api.js", "beams.js", "chat.js", "dom.js", "example_forest.js", "examples.js",
  "forest_model.js", "forest_panel.js", "forest_view.js", "main.js", "race.js", "request.js",
  "settings.js", "sse.js", "status.js", "theme.js",
];

const LATEST_MS = 300;  // a browser that does not tell when it has painted, or has nothing to paint

await new Promise((resolve) => {
  try {
    new PerformanceObserver(resolve).observe({ type: "paint", buffered: true });
  } catch {
    // it has no such entries
  }
  setTimeout(resolve, LATEST_MS);
});
for (const name of MODULES) {
  const link = document.createElement("link");
  link.rel = "modulepreload";
  link.href = `web/${name}`;
  document.head.append(link);
}
await import("./main.js");
