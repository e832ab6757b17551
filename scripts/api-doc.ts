/**
 * `npm run api-doc`: writes docs/api.md, the reference of every name that the package exports, from the types and their
 * comments. `npm run check` fails when it is behind the types.
 */
import { writeFileSync } from "node:fs";
import ts from "typescript";

export const DOCUMENT = "docs/api.md";
const ENTRIES: readonly (readonly [name: string, file: string, what: string])[] = [
  ["procwire", "src/index.ts", "the library for Node"],
  [
    "procwire/client",
    "src/client/browser.ts",
    "the client for pages; what it shares with `procwire` is told there",
  ],
  ["procwire/agents", "src/adapters/agents.ts", "the tools for the OpenAI Agents SDK"],
  ["procwire/ai", "src/adapters/ai.ts", "the tools for the AI SDK"],
];
/** A longer type is better read where it is defined. */
const LONGEST_TYPE = 240;

export function apiDocument(): string {
  const { options } = ts.parseJsonConfigFileContent(
    ts.readConfigFile("tsconfig.json", ts.sys.readFile).config,
    ts.sys,
    ".",
  );
  const program = ts.createProgram(
    ENTRIES.map(([, file]) => file),
    { ...options, noEmit: true },
  );
  const checker = program.getTypeChecker();
  const told = new Set<ts.Symbol>();
  const lines = [
    "# API reference",
    "",
    "Made from the types and their comments by `npm run api-doc`. [client.md](client.md) and [embed.md](embed.md) show how they are used.",
  ];
  for (const [name, file, what] of ENTRIES) {
    const source = program.getSourceFile(file);
    const entry = source && checker.getSymbolAtLocation(source);
    if (!entry) throw new Error(`${file} exports nothing`);
    lines.push("", `## ${name}`, "", `${what.charAt(0).toUpperCase()}${what.slice(1)}.`);
    const exported = checker.getExportsOfModule(entry).sort((one, other) => (one.name < other.name ? -1 : 1));
    for (const alias of exported) {
      const symbol = alias.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(alias) : alias;
      // Another name of something that is exported under its own.
      const isOtherName = alias.name !== symbol.name && exported.some(({ name: own }) => own === symbol.name);
      if (told.has(symbol) || isOtherName) continue;
      told.add(symbol);
      lines.push(...described(alias.name, symbol, checker));
    }
  }
  return `${lines.join("\n")}\n`;
}

function described(name: string, symbol: ts.Symbol, checker: ts.TypeChecker): string[] {
  const declaration = symbol.declarations?.[0];
  if (!declaration) return [];
  const lines = ["", `### ${name}`, ""];
  const doc = docOf(symbol, checker);
  if (doc !== "") lines.push(doc, "");
  if (ts.isClassDeclaration(declaration)) {
    const type = checker.getTypeOfSymbolAtLocation(symbol, declaration);
    const statics = checker.getPropertiesOfType(type).filter(({ name: member }) => member !== "prototype");
    const members = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol));
    lines.push("Class.", "", ...membersOf(statics, "static ", checker), ...membersOf(members, "", checker));
  } else if (ts.isInterfaceDeclaration(declaration)) {
    const members = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol));
    lines.push("Interface.", "", ...membersOf(members, "", checker));
  } else if (ts.isTypeAliasDeclaration(declaration)) {
    lines.push(`Type: ${code(declaration.type.getText())}`);
    const type = checker.getDeclaredTypeOfSymbol(symbol);
    // A class under another name, which users hold by this one.
    if (type.isClass()) lines.push("", ...membersOf(checker.getPropertiesOfType(type), "", checker));
  } else {
    const type = checker.getTypeOfSymbolAtLocation(symbol, declaration);
    lines.push(...signatures(type, checker).map((signature) => code(`${name}${signature}`)));
  }
  return lines;
}

function membersOf(members: ts.Symbol[], prefix: string, checker: ts.TypeChecker): string[] {
  return members.flatMap((member) => {
    const declaration = member.valueDeclaration ?? member.declarations?.[0];
    // Only what is ours and meant for others: no private names, and nothing inherited from the language.
    if (!declaration || declaration.getSourceFile().isDeclarationFile || !isPublic(member, declaration))
      return [];
    const type = checker.getTypeOfSymbolAtLocation(member, declaration);
    const optional = member.flags & ts.SymbolFlags.Optional ? "?" : "";
    const calls = type.getCallSignatures().length > 0 && !ts.isPropertySignature(declaration);
    const texts = calls
      ? signatures(type, checker).map((signature) => `${prefix}${member.name}${optional}${signature}`)
      : [
          `${prefix}${member.name}${optional}: ${checker.typeToString(type, declaration, ts.TypeFormatFlags.NoTruncation)}`,
        ];
    const doc = docOf(member, checker).split("\n\n")[0]?.replaceAll("\n", " ") ?? "";
    return texts.map((text) => `- ${code(text)}${doc === "" ? "" : `: ${doc}`}`);
  });
}

function isPublic(member: ts.Symbol, declaration: ts.Declaration): boolean {
  if (member.name.startsWith("__@") || member.name.startsWith("__#")) return false;
  if (member.getJsDocTags().some(({ name }) => name === "internal")) return false;
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  return (ts.getCombinedModifierFlags(declaration) & hidden) === 0;
}

function signatures(type: ts.Type, checker: ts.TypeChecker): string[] {
  const calls = type.getCallSignatures();
  const flags = ts.TypeFormatFlags.NoTruncation;
  if (calls.length === 0) return [`: ${checker.typeToString(type, undefined, flags)}`];
  return calls.map((call) => checker.signatureToString(call, undefined, flags));
}

function docOf(symbol: ts.Symbol, checker: ts.TypeChecker): string {
  return ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();
}

function code(text: string): string {
  const flat = text.replaceAll(/\s+/g, " ").replaceAll(/import\("[^"]*"\)\./g, "");
  return `\`${(flat.length > LONGEST_TYPE ? `${flat.slice(0, LONGEST_TYPE)} …` : flat).replaceAll("`", "'")}\``;
}

if (import.meta.main) writeFileSync(DOCUMENT, apiDocument());
