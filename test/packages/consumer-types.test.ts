import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import ts from "typescript";
import { snippetsOf } from "../support/system/document-snippets.ts";
import { Editor, type ShownType } from "./editor.ts";
import { emitTypes, ROOT } from "./emitted-types.ts";

const FORMAT: ts.FormatDiagnosticsHost = {
  getCanonicalFileName: (name) => name,
  getCurrentDirectory: () => ROOT,
  getNewLine: () => "\n",
};

/** Pages whose programs use the main entry. */
const GUIDES = ["client.md", "copy.md", "embed.md", "forward.md", "remote-access.md", "attach.md"];

/** Exports that describe schemas themselves. */
const SCHEMA_NAMES = new Set(["Infer", "ObjectSchema", "Schema", "environmentInfo", "methods", "serverNotifications"]);

const libraries = (...names: string[]) => names.map((name) => `lib.${name}.d.ts`);

/** Programs that use the package, compiled against its declarations with the real compiler. */
describe("the types of the package, seen by its users", { timeout: 600_000 }, () => {
  let directory: string;
  before(() => {
    directory = realpathSync(mkdtempSync(join(tmpdir(), "procwire-consumer-")));
    mkdirSync(join(directory, "node_modules/procwire"), { recursive: true });
    emitTypes(join(directory, "node_modules/procwire"));
    for (const name of ["@types", "undici-types", "@modelcontextprotocol"])
      symlinkSync(join(ROOT, "node_modules", name), join(directory, "node_modules", name));
  });
  after(() => rmSync(directory, { recursive: true, force: true, maxRetries: 10 }));

  /** Compiles a program strictly, and checks it and all declarations of the package. Other packages are not checked. */
  const check = (sources: readonly string[], options: ts.CompilerOptions) => {
    writeFileSync(join(directory, "package.json"), '{ "type": "module" }');
    const paths = sources.map((_, index) => join(directory, `program-${index + 1}.ts`));
    for (const [index, path] of paths.entries()) writeFileSync(path, sources[index] ?? "");
    const program = ts.createProgram(paths, {
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2024,
      strict: true,
      exactOptionalPropertyTypes: true,
      noEmit: true,
      typeRoots: [join(directory, "node_modules/@types")],
      ...options,
    });
    const checked = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(directory));
    assert.ok(checked.length > 10, "the declarations of the package are part of the program");
    const problems = [
      ...program.getOptionsDiagnostics(),
      ...program.getGlobalDiagnostics(),
      ...checked.flatMap((file) => ts.getPreEmitDiagnostics(program, file)),
    ];
    assert.equal(ts.formatDiagnostics(problems, FORMAT), "");
  };

  test("compile a program that uses procwire/client without the types of Node", () => {
    check(
      [
        `
      import { connectFromBrowser, type ExecEvent, ExecServerError, lines, type MethodName, run } from "procwire/client";
      import type { InitializeParams, ParamsOf, ProcessListing, RunResult } from "procwire/client";

      await using client = await connectFromBrowser({ url: "ws://127.0.0.1:7070" });
      const { stdout }: RunResult = await run(client.backend, ["date"]);
      const bytes: Uint8Array = (await run(client.backend, ["date"], { encoding: "buffer" })).stdout;
      const child = await client.start({ processId: "1", argv: ["date"], cwd: "/", env: {}, tty: false });
      for await (const line of lines(child)) line.toUpperCase();
      const last: ExecEvent[] = [];
      for await (const event of child.events({ signal: AbortSignal.timeout(1000) })) last.push(event);
      const listed: ProcessListing[] = await client.list();
      const method: MethodName = "process/start";
      const hello: InitializeParams & ParamsOf<"initialize"> = { clientName: "page" };
      await client.files.readText("/etc/hostname").catch((error: unknown) => {
        if (error instanceof ExecServerError) return [error.code, error.path, error.rpcCode, error.method];
      });
      export { bytes, hello, last, listed, method, stdout };
      `,
      ],
      { types: [], lib: libraries("es2024", "dom", "dom.asynciterable", "esnext.disposable") },
    );
  });

  test("compile a Node program that uses the main entry, and the programs of the guides", () => {
    check(
      [
        `
      import { type CommandError, Environment, ExecServerError, type SpawnedProcess } from "procwire";
      import { agentsTools } from "procwire/agents";
      import { aiTools } from "procwire/ai";
      import { createLocalBackend, createUnifiedExec } from "procwire";

      await using environment = await Environment.create(null);
      const text: string = (await environment.run(["env"], { env: process.env })).stdout;
      const bytes: Uint8Array = (await environment.run("date", { encoding: "buffer" })).stdout;
      await using child: SpawnedProcess = await environment.spawn(["cat"], { signal: AbortSignal.timeout(1000) });
      await child.pipe(process.stdout, { end: false });
      await child.pipe(new WritableStream<Uint8Array>());
      await child.pipe(await environment.spawn("sort"));
      const why = (error: CommandError | ExecServerError): string => error.code;
      const isMissing = (error: ExecServerError) => error.code === "ENOENT" || error.code === "MISSING";
      // @ts-expect-error: not one of the codes.
      const isMisspelled = (error: ExecServerError) => error.code === "ENOTENT";
      await using backend = createLocalBackend();
      await using unified = createUnifiedExec({ backend, cwd: "/" });
      const forAgents = agentsTools(unified.tools, (options) => options.name);
      const forAi = aiTools(unified.tools, ({ description }) => description);
      export { bytes, forAgents, forAi, isMisspelled, isMissing, text, why };
      `,
        ...GUIDES.flatMap((document) => snippetsOf(document).map(({ code }) => code)),
      ],
      { types: ["node"], lib: libraries("es2024", "esnext.disposable") },
    );
  });

  test("show plain interfaces in an editor, with names and comments, not types that are derived from schemas", () => {
    const editor = new Editor(
      directory,
      `import type { ProcessListing, StartParams, WaitResult } from "procwire";
      import type {} from "procwire/client";
      declare const params: StartParams;
      declare const listing: ProcessListing;
      declare const waited: WaitResult;
      export const seen = [params.size, params.limits, params.lifetime, listing.status, waited.exitReason, waited.limit];`,
    );
    assert.deepEqual(editor.hovers(), [
      "(property) StartParams.size?: TerminalSize | undefined -- Initial terminal size. Ignored without `tty`.",
      "(property) StartParams.limits?: ProcessLimits | undefined -- The server rejects a limit that it cannot enforce.",
      "(property) StartParams.lifetime?: Lifetime | undefined -- Default: `session`. `persistent` requires a supervised server.",
      "(property) ProcessListing.status?: ProcessStatus | undefined -- Exit reason, limits and input state.",
      "(property) WaitResult.exitReason?: ExitReason | undefined -- Absent while the process runs.",
      "(property) WaitResult.limit?: LimitName | undefined -- The limit that ended the process; absent for other exit reasons.",
    ]);
    for (const module of ["procwire", "procwire/client"]) {
      const shown = editor.exportedTypes(module).filter(({ symbol }) => !SCHEMA_NAMES.has(symbol));
      assert.ok(shown.length > 300, `${shown.length} types`);
      const isDerived = ({ text }: ShownType) =>
        /\b(?:Flat|InferFields|Infer|ObjectSchema|Optional|Required)</.test(text);
      assert.deepEqual(shown.filter(isDerived), []);
      const isAlias = (text: string) => /\b(?:Infer<|ParamsOf<"|ResultOf<"|ServerNotificationParams<")/.test(text);
      assert.deepEqual(editor.declarations(module).filter(isAlias), []);
    }
  });
});
