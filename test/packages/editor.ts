/** The language service of TypeScript, as an editor uses it, on one program. */

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

export interface ShownType {
  /** Exported name that the type belongs to. */
  symbol: string;
  name: string;
  text: string;
}

export class Editor {
  readonly #service: ts.LanguageService;
  readonly #path: string;

  /** Opens a program in a project with installed packages. */
  constructor(directory: string, source: string) {
    this.#path = join(directory, "edited.ts");
    writeFileSync(join(directory, "package.json"), '{ "type": "module" }');
    writeFileSync(this.#path, source);
    this.#service = ts.createLanguageService({
      getScriptFileNames: () => [this.#path],
      getScriptVersion: () => "1",
      getScriptSnapshot: (path) =>
        existsSync(path) ? ts.ScriptSnapshot.fromString(readFileSync(path, "utf8")) : undefined,
      getCurrentDirectory: () => directory,
      getCompilationSettings: () => ({
        module: ts.ModuleKind.NodeNext,
        target: ts.ScriptTarget.ES2024,
        lib: ["lib.es2024.d.ts", "lib.dom.d.ts", "lib.esnext.disposable.d.ts"],
        types: ["node"],
        typeRoots: [join(directory, "node_modules/@types")],
        strict: true,
        exactOptionalPropertyTypes: true,
      }),
      getDefaultLibFileName: ts.getDefaultLibFilePath,
      fileExists: ts.sys.fileExists,
      readFile: ts.sys.readFile,
      readDirectory: ts.sys.readDirectory,
      directoryExists: ts.sys.directoryExists,
      getDirectories: ts.sys.getDirectories,
    });
  }

  /** Returns what the editor shows for each property access of the program: its type, and its comment. */
  hovers(): string[] {
    const shown: string[] = [];
    const visit = (node: ts.Node): void => {
      if (ts.isPropertyAccessExpression(node)) {
        const info = this.#service.getQuickInfoAtPosition(this.#path, node.name.getStart());
        const [type, comment] = [info?.displayParts, info?.documentation].map(ts.displayPartsToString);
        shown.push(`${type} -- ${comment}`);
      }
      ts.forEachChild(node, visit);
    };
    visit(this.#file);
    return shown;
  }

  /** Returns the types of all exports of an imported module, and of their members. */
  exportedTypes(module: string): ShownType[] {
    const { checker, exported } = this.#exports(module);
    const show = (type: ts.Type) => checker.typeToString(type, this.#file, ts.TypeFormatFlags.NoTruncation);
    return exported.flatMap((symbol) => {
      const types = [
        ...(symbol.flags & ts.SymbolFlags.Type ? [checker.getDeclaredTypeOfSymbol(symbol)] : []),
        ...(symbol.flags & ts.SymbolFlags.Value ? [checker.getTypeOfSymbol(symbol)] : []),
      ];
      return types.flatMap((type) => [
        { symbol: symbol.name, name: symbol.name, text: show(type) },
        ...type.getProperties().map((member) => ({
          symbol: symbol.name,
          name: `${symbol.name}.${member.name}`,
          text: show(checker.getTypeOfSymbol(member)),
        })),
      ]);
    });
  }

  /** Returns the declarations of all exported interfaces and type aliases of an imported module. */
  declarations(module: string): string[] {
    return this.#exports(module)
      .exported.flatMap(({ declarations }) => declarations ?? [])
      .filter((node) => ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node))
      .filter(({ typeParameters }) => !typeParameters)
      .map((node) => node.getText());
  }

  #exports(module: string): { checker: ts.TypeChecker; exported: ts.Symbol[] } {
    const checker = this.#program.getTypeChecker();
    const specifier = this.#file.statements
      .filter(ts.isImportDeclaration)
      .map(({ moduleSpecifier }) => moduleSpecifier)
      .find((node) => ts.isStringLiteral(node) && node.text === module);
    const symbol = specifier && checker.getSymbolAtLocation(specifier);
    assert.ok(symbol, `${module} is not imported`);
    const exported = checker
      .getExportsOfModule(symbol)
      .map((one) => (one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one));
    return { checker, exported };
  }

  get #program(): ts.Program {
    const program = this.#service.getProgram();
    assert.ok(program);
    return program;
  }

  get #file(): ts.SourceFile {
    const file = this.#program.getSourceFile(this.#path);
    assert.ok(file);
    return file;
  }
}
