// Light or dark: as the system says, or as the reader chooses. The choice lives as long as the page.

const ORDER = ["auto", "light", "dark"];

export function startTheme(button, onChange) {
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.dataset.theme = theme;
    button.textContent = `Colours: ${theme}`;
    onChange();
  };
  button.addEventListener("click", () => apply(ORDER[(ORDER.indexOf(button.dataset.theme) + 1) % ORDER.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
  apply("auto");
}
