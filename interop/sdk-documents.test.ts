import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { compile, emitTypes, ROOT } from "../test/packages/emitted-types.ts";
import { runSnippet, snippetsOf } from "../test/support/system/document-snippets.ts";

const MODULES = fileURLToPath(new URL("sdks/node_modules", import.meta.url));
const skip = existsSync(join(MODULES, "ai/package.json"))
  ? false
  : "THE REAL SDKS ARE NOT TESTED: run `npm ci --prefix interop/sdks` first";

/** A mock model that requests one command and then repeats the tool result, like the mock in the AI SDK's tests. */
const AI_MODEL = `
  import { MockLanguageModelV4 } from "ai/test";
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as never;
  export const model = new MockLanguageModelV4({
    doGenerate: async ({ prompt }) => {
      const last = prompt.at(-1);
      if (last?.role !== "tool") {
        const input = JSON.stringify({ cmd: "echo tool-ran", login: false });
        const call = { type: "tool-call" as const, toolCallId: "1", toolName: "exec_command", input };
        return { content: [call], finishReason: { unified: "tool-calls", raw: undefined }, usage, warnings: [] };
      }
      const text = JSON.stringify(last.content);
      return { content: [{ type: "text" as const, text }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] };
    },
  });
`;

/** The same mock model for the Agents SDK. */
const AGENTS_MODEL = `
  import { setDefaultModelProvider, setTracingDisabled, Usage } from "@openai/agents";
  setTracingDisabled(true);
  const answer = (item: object) => ({ usage: new Usage(), output: [item] }) as never;
  setDefaultModelProvider({
    getModel: () => ({
      getResponse: async ({ input }) => {
        const last = Array.isArray(input) ? input.at(-1) : null;
        if (last?.type !== "function_call_result")
          return answer({
            ...{ type: "function_call", callId: "1", name: "exec_command", status: "completed" },
            arguments: JSON.stringify({ cmd: "echo tool-ran", login: false }),
          });
        const text = JSON.stringify(last.output);
        const content = [{ type: "output_text", text }];
        return answer({ type: "message", role: "assistant", status: "completed", content });
      },
      getStreamedResponse: () => { throw new Error("nothing streams here"); },
    }),
  });
`;

const DOCUMENTS = [
  { document: "agents-sdk.md", files: { "model.ts": AGENTS_MODEL }, prelude: 'import "./model.ts";\n' },
  { document: "ai-sdk.md", files: { "model.ts": AI_MODEL }, prelude: "" },
];

describe("the documents of the SDKs, with the real packages", { skip, timeout: 600_000 }, () => {
  for (const { document, files, prelude } of DOCUMENTS) {
    test(`${document}: its program runs a command for a model`, () => {
      for (const { code } of snippetsOf(document)) {
        const printed = runSnippet(prelude + code, { modules: MODULES, files });
        assert.match(printed, /Process exited with code 0[\s\S]*tool-ran/);
      }
    });
  }

  test("the programs compile with the types of the SDKs", () => {
    const directory = mkdtempSync(join(tmpdir(), "procwire-sdks-"));
    try {
      symlinkSync(MODULES, join(directory, "node_modules"));
      emitTypes(join(directory, "procwire"));
      writeFileSync(join(directory, "package.json"), '{ "type": "module" }');
      writeFileSync(
        join(directory, "model.ts"),
        'import type { LanguageModel } from "ai"; export declare const model: LanguageModel;',
      );
      const names = DOCUMENTS.flatMap(({ document }) =>
        snippetsOf(document).map(({ code }, index) => {
          const name = `${document}-${index}.ts`;
          const at = {
            procwire: "index",
            "procwire/agents": "adapters/agents",
            "procwire/ai": "adapters/ai",
          };
          const program = Object.entries(at).reduce(
            (text, [entry, file]) => text.replaceAll(`from "${entry}"`, `from "./procwire/dist/${file}.js"`),
            code,
          );
          writeFileSync(join(directory, name), program);
          return name;
        }),
      );
      const types = ["--types", "node", "--typeRoots", join(ROOT, "node_modules/@types")];
      const options = ["--module", "nodenext", "--target", "es2024", "--strict", "--skipLibCheck", "--noEmit"];
      compile([...names, ...options, "--allowImportingTsExtensions", ...types], directory);
    } finally {
      rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });
});
