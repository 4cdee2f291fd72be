// How the search rates what it finds: as Sphinx does by default, but pages of generated lists come last.
const LISTS = ["mutants", "requirements", "figures/figures", "state-diagrams"];

var Scorer = {
  score: ([page, title, anchor, description, score]) => (LISTS.includes(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
