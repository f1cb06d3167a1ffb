// Tables that are wider than the page scroll; a keyboard has to reach them.
document$.subscribe(() => requestAnimationFrame(() => {
  for (const each of document.querySelectorAll('.md-typeset__scrollwrap, .dl-drawing, p:has(> img[src*="pictures/terminal"])')) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
  }
}));
