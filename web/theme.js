// Sets the chosen colours before anything is drawn, so that the page never flashes in the other ones.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem('lace.theme');
  } catch {
    // Storage may be forbidden; the system's choice is used then.
  }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
