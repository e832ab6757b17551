import assert from "node:assert/strict";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import ts from "typescript";
import { API_GROUPS, MAX_PUBLIC_NAMES } from "../../scripts/docs/api-doc.ts";
import { emitTypes, entries, ROOT } from "./emitted-types.ts";

describe("exported names", { timeout: 600_000 }, () => {
  let directory: string;
  before(() => {
    directory = mkdtempSync(join(tmpdir(), "procwire-types-"));
    emitTypes(directory);
    symlinkSync(join(ROOT, "node_modules"), join(directory, "node_modules"));
  });
  after(() => rmSync(directory, { recursive: true, force: true, maxRetries: 10 }));

  const namesOf = (types: string) => moduleOf(directory, resolve(directory, types)).exported.map(({ name }) => name);

  // The main entry exports a selection; its users can import the other client types from procwire/client.
  for (const { name, types } of entries().filter((entry) => entry.name !== ".")) {
    test(`procwire${name.slice(1)} exports every type that its signatures use`, () => {
      assert.deepEqual(unexportedNames(directory, resolve(directory, types)), []);
    });
  }

  test("procwire exports exactly the names of the API groups, each in one group", () => {
    assert.deepEqual(namesOf("dist/index.d.ts").sort(), Object.values(API_GROUPS).flat().sort());
  });

  test(`procwire exports at most ${MAX_PUBLIC_NAMES} names`, () => {
    assert.ok(namesOf("dist/index.d.ts").length <= MAX_PUBLIC_NAMES);
  });

  test("procwire exports the names of the v0 exec-server", () => {
    const names = new Set(namesOf("dist/index.d.ts"));
    assert.deepEqual(
      SEED_NAMES.filter((name) => !names.has(name)),
      [],
    );
  });
});

/** Types that users pass on without using their members. */
const OPAQUE_TYPES = new Set(["ObjectSchema"]);

const SEED_NAMES = [
  ...["ExecServerClient", "ExecServerClientConnectOptions", "ExecServerError", "ExecServerEvent"],
  ...["ExecServerOutput", "RemoteExecServerConnectArgs", "ExecServerLaunchCommand", "SpawnedExecServer"],
  ...["spawnLocalExecServer", "ExecExitedNotification", "ExecOutputDeltaNotification", "ExecOutputStream"],
  ...["ExecParams", "ExecResponse", "InitializeParams", "InitializeResponse", "TerminateParams"],
  ...["TerminateResponse", "WriteParams", "WriteResponse", "ExecServerTransport"],
  ...["ExecServerTransportParseError", "runMain", "runMainWithTransport", "DEFAULT_LISTEN_URL"],
  ...["Environment", "ExecBackend", "ExecProcess", "ExecProcessEvent", "ProcessId", "ReadResponse"],
  ...["StartedExecProcess", "WriteStatus", "PROTOCOL_VERSION"],
];

type Module = { checker: ts.TypeChecker; exported: ts.Symbol[] };
const modules = new Map<string, Module>();

/** Returns the exports of an entry; the compiler reads each entry once. */
function moduleOf(directory: string, entry: string): Module {
  const module = modules.get(entry) ?? readModule(directory, entry);
  modules.set(entry, module);
  return module;
}

function readModule(directory: string, entry: string): Module {
  const program = ts.createProgram([entry], {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2024,
    lib: ["lib.es2024.d.ts", "lib.esnext.disposable.d.ts"],
    types: ["node"],
    typeRoots: [join(directory, "node_modules/@types")],
    strict: true,
    noEmit: true,
    skipLibCheck: true,
  });
  const checker = program.getTypeChecker();
  const file = program.getSourceFile(entry);
  assert.ok(file, `${entry} does not exist`);
  const module = checker.getSymbolAtLocation(file);
  assert.ok(module, `${entry} is not a module`);
  return { checker, exported: checker.getExportsOfModule(module) };
}

/** Returns names of this package that exported declarations use and that the entry does not export. */
function unexportedNames(directory: string, entry: string): string[] {
  const { checker, exported } = moduleOf(directory, entry);
  const known = new Set(exported.map((symbol) => origin(checker, symbol)));
  // `type Environment = AnyEnvironment` exports a declaration under another name.
  for (const symbol of [...known])
    for (const declaration of symbol.declarations ?? [])
      if (ts.isTypeAliasDeclaration(declaration) && ts.isTypeReferenceNode(declaration.type)) {
        const target = checker.getSymbolAtLocation(declaration.type.typeName);
        if (target && !declaration.type.typeArguments) known.add(origin(checker, target));
      }
  assert.ok(known.size > 3, `${entry} exports only ${known.size} names`);
  const missing = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (isPrivate(node)) return;
    const named = nameIn(node);
    const symbol = named && checker.getSymbolAtLocation(named);
    if (symbol) {
      const used = origin(checker, symbol);
      if (isProcwireSymbol(used) && !known.has(used)) missing.add(`${used.name} (of ${lineOf(node)})`);
    }
    ts.forEachChild(node, visit);
  };
  for (const symbol of known) {
    if (!isProcwireSymbol(symbol) || OPAQUE_TYPES.has(symbol.name)) continue;
    for (const declaration of symbol.declarations ?? []) visit(declaration);
  }
  return [...missing].sort();

  function isProcwireSymbol(symbol: ts.Symbol): boolean {
    if (symbol.flags & ts.SymbolFlags.TypeParameter) return false;
    const [declaration] = symbol.declarations ?? [];
    return declaration?.getSourceFile().fileName.startsWith(join(directory, "dist")) ?? false;
  }
}

function origin(checker: ts.TypeChecker, symbol: ts.Symbol): ts.Symbol {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

/** Returns the name that a type reference or an `extends` clause uses, or null for other nodes. */
function nameIn(node: ts.Node): ts.Node | null {
  if (ts.isTypeReferenceNode(node)) return node.typeName;
  if (ts.isExpressionWithTypeArguments(node)) return node.expression;
  return ts.isImportTypeNode(node) ? (node.qualifier ?? null) : null;
}

function isPrivate(node: ts.Node): boolean {
  return ts.canHaveModifiers(node) && ts.getCombinedModifierFlags(node as ts.Declaration) === ts.ModifierFlags.Private;
}

function lineOf(node: ts.Node): string {
  const file = node.getSourceFile();
  const { line } = file.getLineAndCharacterOfPosition(node.getStart());
  return `${file.fileName.split("/dist/")[1]}:${line + 1}`;
}
