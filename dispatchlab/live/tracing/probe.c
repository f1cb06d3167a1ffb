/* The probe: records a hop and goes on to its kernel. See Note [Probes in the slots] in slot_probes.py.

   `tools/build_probe.py` compiles this file and writes what comes out into probe_code.py. The code is freestanding,
   independent of its position, touches no vector register, and calls nothing. */

typedef unsigned long u64;
typedef unsigned int u32;
typedef unsigned char u8;

/* A probe of one kernel of one operator: where it goes on to, the functor of an unboxed kernel (what it cannot be for a
   boxed one), and where the tensors are among the arguments. */
struct probe {
    u64 target, functor;
    const u32 *arguments[2]; /* for a result in registers or none, and for one in memory, whose address comes first */
};

struct record {
    u64 probe; /* plus one; written last */
    u64 thread, keys, stack, included, excluded, of_arguments, time, caller, unknown;
    u64 each[4]; /* the keys of the first arguments of the plan */
};

struct control {
    u64 head, capacity;
    struct record *records;
    const struct probe *probes;
    u64 module, offset;       /* of the thread's local key sets */
    u64 key_set;              /* of a TensorImpl */
    u64 first_probe, last_probe; /* addresses of the probes' code */
    u64 table, entry_bytes;   /* of an OperatorEntry */
    u64 slot_words;
    u8 *copies;               /* room for copies of entries */
    u64 copies_count, copies_taken;
    u64 check;                /* OperatorEntry::checkInvariants */
    u64 returns, mask;        /* where the addresses that kernels return to are kept: that of a place on the stack is at
                                 the place's last bits */
    u64 (*stack_of)(void *);  /* _Unwind_GetCFA */
};

extern u64 probe_control __attribute__((visibility("hidden")));
extern const u8 probe_return[] __attribute__((visibility("hidden")));

enum { BY_A_JUMP = 2 };
#define RETURNED (1UL << 63)
#define RAISED (RETURNED + 1)


enum { TENSOR = 1, OPTIONAL_TENSOR, TENSORS, BOXED, OPTIONAL_OTHER, BOXED_OTHER, UNKNOWN };
enum { IVALUE_NONE = 0, IVALUE_TENSOR = 1, IVALUE_BYTES = 16 };
enum { REGISTERS = 6, RETURN_ADDRESS = 7, MOST_EACH = 4 };

_Static_assert(__builtin_offsetof(struct control, check) == 120, "probe_check has it");

static inline u64 keys_of(const struct control *control, u64 tensor) {
    return *(const u64 *)(tensor + control->key_set);
}

/* The keys of the tensors; sets `unknown` where an argument that may have keys cannot be read. */
static u64 of_arguments(const struct control *control, const u32 *plan, const u64 *words, u64 *unknown, u64 *each) {
    u64 all = 0;
    for (u64 number = 0; *plan; plan++, number++) {
        u64 at = *plan & 0xffffff, kind = *plan >> 24, found = 0;
        if (kind == UNKNOWN) {
            *unknown |= 1;
        } else if (kind == BOXED || kind == BOXED_OTHER) { /* counted from the end of the stack, which rcx points to */
            const u64 *value = (const u64 *)(((const u64 *)words[3])[1] - at * IVALUE_BYTES);
            if ((u32)value[1] == IVALUE_TENSOR)
                found |= keys_of(control, value[0]);
            else if (kind == BOXED_OTHER && (u32)value[1] != IVALUE_NONE)
                *unknown |= 1;
        } else {
            const u64 *place = &words[at < REGISTERS ? at : at - REGISTERS + RETURN_ADDRESS + 1];
            if (kind == TENSORS)
                for (u64 i = 0; i < place[1]; i++) found |= keys_of(control, ((const u64 *)place[0])[i]);
            else if (kind == TENSOR || *(const u8 *)(place[0] + 8)) { /* else an optional that is empty */
                if (kind == OPTIONAL_OTHER)
                    *unknown |= 1;
                else
                    found |= keys_of(control, *(const u64 *)place[0]);
            }
        }
        if (number < MOST_EACH) each[number] = found;
        all |= found;
    }
    return all;
}

/* Record a hop; returns where to go on. `words` are the six registers of arguments, rax, the return address, and the
   arguments on the stack. */
__attribute__((used, noinline)) u64 probe_hop(struct control *control, u64 number, u64 *words) {
    const struct probe *probe = &control->probes[number];
    u64 index = __atomic_fetch_add(&control->head, 1, __ATOMIC_RELAXED);
    if (index < control->capacity) {
        struct record *record = &control->records[index];
        u64 thread, vector;
        __asm__("mov %%fs:0, %0" : "=r"(thread));
        __asm__("mov %%fs:8, %0" : "=r"(vector));
        record->thread = thread;
        int in_memory = words[0] != probe->functor; /* of a boxed kernel the set is third, too */
        u64 unknown = 0;
        record->keys = words[1 + in_memory];
        u64 *place = &words[RETURN_ADDRESS], *kept = (u64 *)(control->returns + ((u64)place & control->mask));
        if (*place == (u64)probe_return) {
            unknown = BY_A_JUMP; /* the kernel above jumped here and is done: both return at once */
        } else {
            *kept = *place;
            *place = (u64)probe_return;
        }
        record->stack = (u64)place;
        record->caller = *kept;
        const u64 *local = (const u64 *)(*(const u64 *)(vector + 16 * control->module) + control->offset);
        record->included = local[0];
        record->excluded = local[1];
        record->of_arguments = of_arguments(control, probe->arguments[in_memory], words, &unknown, record->each);
        record->unknown = unknown;
        record->time = __builtin_ia32_rdtsc();
        __atomic_store_n(&record->probe, number + 1, __ATOMIC_RELEASE);
    }
    return probe->target;
}

static void ended(struct control *control, u64 place, u64 how) {
    u64 index = __atomic_fetch_add(&control->head, 1, __ATOMIC_RELAXED);
    if (index >= control->capacity) return;
    struct record *record = &control->records[index];
    u64 thread;
    __asm__("mov %%fs:0, %0" : "=r"(thread));
    record->thread = thread;
    record->stack = place;
    record->time = __builtin_ia32_rdtsc();
    __atomic_store_n(&record->probe, how, __ATOMIC_RELEASE);
}

/* Record that a kernel returned, and put the address back that it would have returned to. */
__attribute__((used, noinline)) void probe_back(struct control *control, u64 *place) {
    *place = *(u64 *)(control->returns + ((u64)place & control->mask));
    ended(control, (u64)place, RETURNED);
}

/* The personality routine of `probe_return`: record that a kernel raised, and let the exception pass. */
__attribute__((used, noinline)) int probe_raised(int version, int actions, u64 kind, void *raised, void *context) {
    struct control *control = (struct control *)probe_control;
    enum { CLEANUP_PHASE = 2, CONTINUE = 8 };
    if (actions & CLEANUP_PHASE) ended(control, control->stack_of(context) - 8, RAISED);
    return CONTINUE;
}

/* A copy of an entry as it would be without probes, for PyTorch's own check of it. */
__attribute__((used, noinline)) u64 probe_copy(struct control *control, const u64 *entry) {
    u64 taken = __atomic_fetch_add(&control->copies_taken, 1, __ATOMIC_RELAXED) % control->copies_count;
    u64 *copy = (u64 *)(control->copies + taken * control->entry_bytes);
    for (u64 i = 0; i < control->entry_bytes / 8; i++) copy[i] = entry[i];
    u64 *slots = copy + control->table / 8;
    for (u64 i = 0; i < control->slot_words; i++)
        if (slots[i] >= control->first_probe && slots[i] < control->last_probe)
            slots[i] = control->probes[(slots[i] - control->first_probe) / 16].target;
    return (u64)copy;
}

__asm__(".globl probe_control\nprobe_control: .quad 0\n"
        ".globl probe_entry\nprobe_entry:\n"
        "push %rax; push %r9; push %r8; push %rcx; push %rdx; push %rsi; push %rdi\n"
        "mov probe_control(%rip), %rdi; mov %r11, %rsi; mov %rsp, %rdx; call probe_hop\n"
        "mov %rax, %r11\n"
        "pop %rdi; pop %rsi; pop %rdx; pop %rcx; pop %r8; pop %r9; pop %rax\n"
        "jmp *%r11\n"
        ".globl probe_check\nprobe_check:\n"
        "mov %rdi, %rsi; mov probe_control(%rip), %rdi; push %rdi; call probe_copy; pop %rsi\n"
        "mov %rax, %rdi; mov 120(%rsi), %rax; jmp *%rax\n"
        ".globl probe_return\nnop\nprobe_return:\n" /* an unwinder looks for what is before an address of return */
        "sub $8, %rsp; push %rax; push %rdx; push %rcx\n"
        "mov probe_control(%rip), %rdi; lea 24(%rsp), %rsi; call probe_back\n"
        "pop %rcx; pop %rdx; pop %rax; ret\n"
        ".globl probe_clock\nprobe_clock:\n"
        "rdtsc; shl $32, %rdx; or %rdx, %rax; ret\n");
