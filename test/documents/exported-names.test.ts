import assert from "node:assert/strict";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import ts from "typescript";
import { emitTypes, entries, ROOT } from "./emitted-types.ts";

describe("what the package exports", { timeout: 300_000 }, () => {
  let folder: string;
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "procwire-types-"));
    emitTypes(folder);
    symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  for (const { name, types } of entries()) {
    it(`has every name that a signature of procwire${name.slice(1)} uses`, () => {
      assert.deepEqual(unexportedNames(folder, resolve(folder, types)), []);
    });
  }

  it("has the names of the first exec-servers", () => {
    const entry = resolve(folder, "dist/index.d.ts");
    const { exported } = moduleOf(folder, entry);
    const names = new Set([...exported].map((symbol) => symbol.name));
    assert.deepEqual(
      SEED_NAMES.filter((name) => !names.has(name)),
      [],
    );
  });
});

/** Parts that users hand on, as from `createLocalHost` to `ExecServer`, or that types are inferred from; nobody takes them apart. */
const HANDED_ON = new Set([
  ...[
    "EventLog",
    "FileSystem",
    "HostServices",
    "HttpService",
    "ListenAt",
    "ResolvedSandbox",
    "ResolvedWalls",
  ],
  ...["ObjectSchema", "RetentionBudget", "ServerFigures", "SharedRoom", "WalledFileServers", "Wire"],
]);

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

function moduleOf(folder: string, entry: string) {
  const program = ts.createProgram([entry], {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2024,
    lib: ["lib.es2024.d.ts", "lib.esnext.disposable.d.ts"],
    types: ["node"],
    typeRoots: [join(folder, "node_modules/@types")],
    strict: true,
    noEmit: true,
    skipLibCheck: true,
  });
  const checker = program.getTypeChecker();
  const file = program.getSourceFile(entry);
  assert.ok(file, `${entry} is not there`);
  const module = checker.getSymbolAtLocation(file);
  assert.ok(module, `${entry} is no module`);
  return { checker, exported: checker.getExportsOfModule(module) };
}

/** Names that stand in an exported declaration, are declared in this package, and cannot be imported from this entry. */
function unexportedNames(folder: string, entry: string): string[] {
  const { checker, exported } = moduleOf(folder, entry);
  const known = new Set(exported.map((symbol) => origin(checker, symbol)));
  // `type Environment = AnyEnvironment` exports the one by the name of the other.
  for (const symbol of [...known])
    for (const declaration of symbol.declarations ?? [])
      if (ts.isTypeAliasDeclaration(declaration) && ts.isTypeReferenceNode(declaration.type)) {
        const other = checker.getSymbolAtLocation(declaration.type.typeName);
        if (other && !declaration.type.typeArguments) known.add(origin(checker, other));
      }
  assert.ok(known.size > 3, `${entry} exports next to nothing`);
  const missing = new Set<string>();
  const look = (node: ts.Node): void => {
    if (isHidden(node)) return;
    const named = nameIn(node);
    const symbol = named && checker.getSymbolAtLocation(named);
    if (symbol) {
      const used = origin(checker, symbol);
      if (isOurs(used) && !known.has(used)) missing.add(`${used.name} (of ${lineOf(node)})`);
    }
    ts.forEachChild(node, look);
  };
  for (const symbol of known) {
    if (!isOurs(symbol) || HANDED_ON.has(symbol.name)) continue;
    for (const declaration of symbol.declarations ?? []) look(declaration);
  }
  return [...missing].sort();

  function isOurs(symbol: ts.Symbol): boolean {
    if (symbol.flags & ts.SymbolFlags.TypeParameter) return false;
    const [declaration] = symbol.declarations ?? [];
    return declaration?.getSourceFile().fileName.startsWith(join(folder, "dist")) ?? false;
  }
}

function origin(checker: ts.TypeChecker, symbol: ts.Symbol): ts.Symbol {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

/** The name a type or an `extends` refers to by this node. A type that is derived from a value needs not that value's name. */
function nameIn(node: ts.Node): ts.Node | null {
  if (ts.isTypeReferenceNode(node)) return node.typeName;
  if (ts.isExpressionWithTypeArguments(node)) return node.expression;
  return ts.isImportTypeNode(node) ? (node.qualifier ?? null) : null;
}

function isHidden(node: ts.Node): boolean {
  return (
    ts.canHaveModifiers(node) &&
    ts.getCombinedModifierFlags(node as ts.Declaration) === ts.ModifierFlags.Private
  );
}

function lineOf(node: ts.Node): string {
  const file = node.getSourceFile();
  const { line } = file.getLineAndCharacterOfPosition(node.getStart());
  return `${file.fileName.split("/dist/")[1]}:${line + 1}`;
}
