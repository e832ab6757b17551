/**
 * Replaces types that are derived from schemas by plain interfaces in the emitted declarations. The sources derive each
 * type from its schema, so that both stay equal; users of the package read names, fields and comments instead.
 */
import { globSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import ts from "typescript";

/** Types that are derived from a schema. */
const DERIVED = /\b(?:Infer|ParamsOf|ResultOf|ServerNotificationParams)<|^keyof typeof /;
/** Declarations whose types users see. */
const PUBLIC = /^(?:exec|client)\/|^protocol\/(?:methods|process-schemas|network\/network-schemas)\.d\.ts$/;

const FORMAT = ts.TypeFormatFlags.NoTruncation | ts.TypeFormatFlags.UseSingleQuotesForStringLiteralType;

/** Rewrites the declarations below `directory`. */
export function writePlainDeclarations(directory: string): void {
  const paths = globSync("**/*.d.ts", { cwd: directory }).filter((path) => PUBLIC.test(path));
  const program = ts.createProgram(
    paths.map((path) => join(directory, path)),
    {
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2024,
      lib: ["lib.es2024.d.ts", "lib.dom.d.ts", "lib.esnext.disposable.d.ts"],
      types: ["node"],
      strict: true,
      exactOptionalPropertyTypes: true,
      skipLibCheck: true,
      noEmit: true,
    },
  );
  const writer = new PlainTypes(program.getTypeChecker());
  const files = paths.map((path) => program.getSourceFile(join(directory, path))).filter((file) => file !== undefined);
  for (const file of files) writer.collectNames(file);
  for (const file of files) {
    const text = writer.rewrite(file);
    if (text !== file.text) writeFileSync(file.fileName, text);
  }
}

type Derived = ts.InterfaceDeclaration | ts.TypeAliasDeclaration;

function isDerived(node: ts.Node): node is Derived {
  if (ts.isInterfaceDeclaration(node))
    return !node.typeParameters && DERIVED.test(node.heritageClauses?.map((clause) => clause.getText()).join() ?? "");
  return ts.isTypeAliasDeclaration(node) && !node.typeParameters && DERIVED.test(node.type.getText());
}

class PlainTypes {
  readonly #checker: ts.TypeChecker;
  /** Names of derived types by their structure. */
  readonly #names = new Map<string, { name: string; file: string }>();
  /** Names that the current file must import, by file. */
  #imports = new Map<string, Set<string>>();
  #current: { file: string; name: string } = { file: "", name: "" };

  constructor(checker: ts.TypeChecker) {
    this.#checker = checker;
  }

  collectNames(file: ts.SourceFile): void {
    for (const node of file.statements) {
      // Users see the unions of the schemas by name; interfaces there describe the wire.
      const isOnWire = ts.isInterfaceDeclaration(node) && /\/process-schemas\.d\.ts$/.test(file.fileName);
      if (!isDerived(node) || isOnWire || (ts.isInterfaceDeclaration(node) && hasOwnParts(node))) continue;
      const structure = this.#structure(this.#checker.getTypeAtLocation(node.name));
      if (structure !== null && !this.#names.has(structure))
        this.#names.set(structure, { name: node.name.text, file: file.fileName });
    }
  }

  rewrite(file: ts.SourceFile): string {
    this.#imports = new Map();
    let text = file.text;
    for (const node of [...file.statements].reverse().filter(isDerived)) {
      this.#current = { file: file.fileName, name: node.name.text };
      const plain = ts.isInterfaceDeclaration(node) ? this.#plainInterface(node) : this.#plainAlias(node);
      text = text.slice(0, node.getStart()) + plain + text.slice(node.end);
    }
    const imports = this.#importLines(file);
    const after = file.statements.filter(isImport).at(-1)?.end ?? 0;
    return imports === "" ? text : `${text.slice(0, after)}\n${imports}${text.slice(after)}`;
  }

  #plainInterface(node: ts.InterfaceDeclaration): string {
    const own = new Set(node.members.map((member) => member.name?.getText()));
    const bases = node.heritageClauses?.flatMap(({ types }) => [...types]) ?? [];
    const kept = bases.filter((base) => !DERIVED.test(base.getText())).map((base) => base.getText());
    const inherited = bases
      .filter((base) => DERIVED.test(base.getText()))
      .flatMap((base) => this.#members(this.#checker.getTypeAtLocation(base), own));
    const written = node.members.map((member) => `    ${member.getFullText().trim()}`);
    const heritage = kept.length > 0 ? ` extends ${kept.join(", ")}` : "";
    return `export interface ${node.name.text}${heritage} {\n${[...inherited, ...written].join("\n")}\n}`;
  }

  #plainAlias(node: ts.TypeAliasDeclaration): string {
    const type = this.#checker.getTypeFromTypeNode(node.type);
    if (!isPlainObject(type) && !type.isIntersection())
      return `export type ${node.name.text} = ${this.#print(type, true)};`;
    return `export interface ${node.name.text} {\n${this.#members(type, new Set()).join("\n")}\n}`;
  }

  /** Returns one line per member, with its comment, in the order of the schema. */
  #members(type: ts.Type, omitted: ReadonlySet<string | undefined>): string[] {
    return this.#properties(type)
      .filter(({ name }) => !omitted.has(name))
      .map((property) => {
        const comment = ts.displayPartsToString(property.getDocumentationComment(this.#checker));
        const lines = comment === "" ? [] : [toComment(comment)];
        return [...lines, `    ${this.#member(property)};`].join("\n");
      });
  }

  #member(property: ts.Symbol): string {
    const type = this.#checker.getTypeOfSymbol(property);
    const isOptional = (property.flags & ts.SymbolFlags.Optional) !== 0;
    const name = /^[A-Za-z_$][\w$]*$/.test(property.name) ? property.name : JSON.stringify(property.name);
    const has = (flag: ts.TypeFlags) => type.isUnion() && type.types.some(({ flags }) => flags & flag);
    const parts = [
      this.#print(this.#checker.getNonNullableType(type)),
      ...(has(ts.TypeFlags.Null) ? ["null"] : []),
      ...(has(ts.TypeFlags.Undefined) ? ["undefined"] : []),
    ];
    return `${name}${isOptional ? "?" : ""}: ${parts.join(" | ")}`;
  }

  /** Returns the type as text: by the name of a derived type if there is one. */
  #print(type: ts.Type, isDefinition = false): string {
    const structure = this.#structure(type);
    const named = structure === null || isDefinition ? undefined : this.#names.get(structure);
    if (named) return this.#reference(named);
    if (type.isUnion() && !(type.flags & ts.TypeFlags.Boolean)) {
      // Literals keep their order in the checker; objects and arrays are printed by name.
      const hasObjects = type.types.some((one) => one.flags & ts.TypeFlags.Object);
      if (hasObjects) return type.types.map((one) => this.#print(one)).join(" | ");
    }
    if (this.#checker.isArrayType(type)) {
      const [item] = this.#checker.getTypeArguments(type as ts.TypeReference);
      const text = item ? this.#print(item) : "unknown";
      return /[|&]/.test(text) ? `(${text})[]` : `${text}[]`;
    }
    if (isPlainObject(type) && type.getStringIndexType() === undefined) {
      const members = this.#properties(type).map((property) => this.#member(property));
      return `{ ${members.join("; ")} }`;
    }
    return this.#checker.typeToString(type, undefined, FORMAT).replaceAll("'", '"');
  }

  #reference(named: { name: string; file: string }): string {
    if (named.file === this.#current.file) return named.name;
    const names = this.#imports.get(named.file) ?? new Set();
    this.#imports.set(named.file, names.add(named.name));
    return named.name;
  }

  #importLines(file: ts.SourceFile): string {
    return [...this.#imports]
      .map(([path, names]) => {
        const from = relative(dirname(file.fileName), path).replace(/\.d\.ts$/, ".ts");
        const declared = new Set(file.statements.filter(isImport).flatMap(importedNames));
        const missing = [...names].filter((name) => !declared.has(name)).sort();
        return missing.length === 0
          ? ""
          : `import type { ${missing.join(", ")} } from "${from.startsWith(".") ? from : `./${from}`}";\n`;
      })
      .join("");
  }

  /** Properties in the order of their declarations. */
  #properties(type: ts.Type): ts.Symbol[] {
    const position = (symbol: ts.Symbol) => symbol.declarations?.[0]?.pos ?? 0;
    return this.#checker.getPropertiesOfType(type).sort((one, other) => position(one) - position(other));
  }

  /** Returns a text that equal structures share; null for primitive types, arrays and maps. */
  #structure(type: ts.Type): string | null {
    if (type.isUnion() && type.types.every((one) => one.isStringLiteral()))
      return type.types
        .map((one) => this.#checker.typeToString(one))
        .sort()
        .join("|");
    if (!isPlainObject(type) || type.getStringIndexType() !== undefined) return null;
    const members = this.#checker.getPropertiesOfType(type).map((property) => {
      const member = this.#checker.getTypeOfSymbol(property);
      const isOptional = property.flags & ts.SymbolFlags.Optional ? "?" : "";
      return `${property.name}${isOptional}:${this.#structure(member) ?? this.#expand(member)}`;
    });
    return members.length === 0 ? null : `{${members.sort().join(";")}}`;
  }

  #expand(type: ts.Type): string {
    if (type.isUnion())
      return type.types
        .map((one) => this.#structure(one) ?? this.#expand(one))
        .sort()
        .join("|");
    if (this.#checker.isArrayType(type)) {
      const [item] = this.#checker.getTypeArguments(type as ts.TypeReference);
      return `${item ? (this.#structure(item) ?? this.#expand(item)) : ""}[]`;
    }
    return this.#checker.typeToString(type, undefined, FORMAT);
  }
}

function hasOwnParts({ members, heritageClauses }: ts.InterfaceDeclaration): boolean {
  return members.length > 0 || (heritageClauses?.some(({ types }) => types.length > 1) ?? false);
}

/** Reports whether a type is an object with fields: no class, no function, no array, no type of a library. */
function isPlainObject(type: ts.Type): boolean {
  if (!(type.flags & ts.TypeFlags.Object) || type.getCallSignatures().length > 0) return false;
  const flags = (type as ts.ObjectType).objectFlags;
  return (
    (flags & (ts.ObjectFlags.Anonymous | ts.ObjectFlags.Mapped | ts.ObjectFlags.Interface)) !== 0 &&
    !isLibraryType(type)
  );
}

function isLibraryType(type: ts.Type): boolean {
  // A mapped type such as `Omit` is declared in a library, but has the fields of its argument.
  if ((type as ts.ObjectType).objectFlags & ts.ObjectFlags.Mapped) return false;
  const [declaration] = type.symbol?.declarations ?? [];
  return declaration !== undefined && /\/lib\.[\w.]+\.d\.ts$|\/@types\//.test(declaration.getSourceFile().fileName);
}

function toComment(text: string): string {
  const lines = text.split("\n");
  return lines.length === 1
    ? `    /** ${text} */`
    : `    /**\n${lines.map((line) => `     * ${line}`).join("\n")}\n     */`;
}

function isImport(node: ts.Node): node is ts.ImportDeclaration {
  return ts.isImportDeclaration(node);
}

function importedNames({ importClause }: ts.ImportDeclaration): string[] {
  const bindings = importClause?.namedBindings;
  return bindings && ts.isNamedImports(bindings) ? bindings.elements.map(({ name }) => name.text) : [];
}
