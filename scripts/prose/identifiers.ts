/** Words that are not part of a declared name. Entries of two words match camelCase and snake_case. */
const BANNED_WORDS = [
  ..."tell tells told untold wall walls walled door kept keeper keepers unkept figures came asked unasked whose".split(
    " ",
  ),
  ..."bury buried heard lasting straight outlived mend far strange strangers crowd crowded shelf dress".split(" "),
  ..."ballots beside looks".split(" "),
  ...["let go", "goes on", "went on", "under way", "look at", "look again"],
];
const BANNED = new RegExp(`\\b(?:${BANNED_WORDS.join("|")})\\b`);
const ALLOWED = /\bwall (?:time|clock)\b/;

const MODIFIERS = "(?:(?:public|private|protected|static|readonly|async|override|abstract|declare|get|set)\\s+)*";
const C_MODIFIERS = "(?:(?:static|inline|extern|constexpr|const|virtual|explicit|unsigned|struct|enum)\\s+)*";
const DECLARATIONS = [
  /\b(?:class|interface|type|enum|struct|function\*?|const|let|using|#define)\s+([A-Za-z_$][\w$]*)/dg,
  // Methods, fields, parameters and calls at the start of a line.
  new RegExp(`^\\s+${MODIFIERS}\\*?#?([A-Za-z_$][\\w$]*)[?!]?(?:\\(|<[^>]*>\\(|\\s*[:=;](?!=))`, "dgm"),
  // C and C++ declarations with a type before the name.
  new RegExp(`^\\s*${C_MODIFIERS}[A-Za-z_][\\w:<>]*[\\s*&]+([A-Za-z_]\\w*)\\s*(?:\\(|=|;|\\{|\\[)`, "dgm"),
];

export interface Identifier {
  name: string;
  /** Offset of its first occurrence. */
  at: number;
}

/** Returns each declared identifier with a banned word once. `code` has neither comments nor strings. */
export function bannedIdentifiers(code: string): Identifier[] {
  const first = new Map<string, number>();
  for (const declaration of DECLARATIONS) {
    for (const match of code.matchAll(declaration)) {
      const [, name = ""] = match;
      const at = match.indices?.[1]?.[0] ?? match.index;
      first.set(name, Math.min(at, first.get(name) ?? at));
    }
  }
  return [...first].flatMap(([name, at]) => (hasBannedWord(name) ? [{ name, at }] : []));
}

function hasBannedWord(name: string): boolean {
  const words = name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replace(/[_$]+/g, " ")
    .toLowerCase();
  return BANNED.test(words) && !ALLOWED.test(words);
}
