/* All datatypes with all operations, by all families of calls, on the memory of a process that makes no calls. */
#include <complex.h>
#include <stdbool.h>

#include "check.h"

#define COUNT 3
#define ROOM 4096

typedef __int128 i128;
typedef unsigned __int128 u128;

union value {
	int8_t i8; uint8_t u8; int16_t i16; uint16_t u16; int32_t i32; uint32_t u32; int64_t i64; uint64_t u64;
	float f; double d; float complex fc; double complex dc; long double ld; long double complex ldc; i128 i128_; u128 u128_;
	unsigned char bytes[32];
};

static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 16, 32, 16, 16 };
enum { TYPES = 16, OPS = 19 };

static bool is_real(int type) { return type == FI_FLOAT || type == FI_DOUBLE || type == FI_LONG_DOUBLE; }
static bool is_complex(int type)
{
	return type == FI_FLOAT_COMPLEX || type == FI_DOUBLE_COMPLEX || type == FI_LONG_DOUBLE_COMPLEX;
}

static bool defined(int type, int op)
{
	if (is_complex(type))
		return op == FI_SUM || op == FI_PROD || op == FI_LOR || op == FI_LAND || op == FI_LXOR ||
		       op == FI_ATOMIC_READ || op == FI_ATOMIC_WRITE || op == FI_CSWAP || op == FI_CSWAP_NE;
	if (is_real(type))
		return op != FI_BOR && op != FI_BAND && op != FI_BXOR && op != FI_MSWAP;
	return true;
}

#define ORDERED(T, member, t, b, c)                                                                                     \
	switch (op) {                                                                                                   \
	case FI_MIN: if (b < t) t = b; break;                                                                           \
	case FI_MAX: if (b > t) t = b; break;                                                                           \
	case FI_CSWAP_LE: if (c <= t) t = b; break;                                                                     \
	case FI_CSWAP_LT: if (c < t) t = b; break;                                                                      \
	case FI_CSWAP_GE: if (c >= t) t = b; break;                                                                     \
	case FI_CSWAP_GT: if (c > t) t = b; break;                                                                      \
	default: break;                                                                                                 \
	}
#define NUMBER(T, member, t, b, c)                                                                                      \
	switch (op) {                                                                                                   \
	case FI_SUM: t = t + b; break;                                                                                  \
	case FI_PROD: t = t * b; break;                                                                                 \
	case FI_LOR: t = (t != 0) || (b != 0); break;                                                                   \
	case FI_LAND: t = (t != 0) && (b != 0); break;                                                                  \
	case FI_LXOR: t = (t != 0) != (b != 0); break;                                                                  \
	case FI_ATOMIC_WRITE: t = b; break;                                                                             \
	case FI_CSWAP: if (c == t) t = b; break;                                                                        \
	case FI_CSWAP_NE: if (c != t) t = b; break;                                                                     \
	default: break;                                                                                                 \
	}
#define BITS(T, member, t, b, c)                                                                                        \
	switch (op) {                                                                                                   \
	case FI_BOR: t = t | b; break;                                                                                  \
	case FI_BAND: t = t & b; break;                                                                                 \
	case FI_BXOR: t = t ^ b; break;                                                                                 \
	case FI_MSWAP: t = (b & c) | (t & ~c); break;                                                                   \
	default: break;                                                                                                 \
	}
#define INTEGER(T, member)                                                                                              \
	{                                                                                                               \
		T t_ = target->member, b_ = operand->member, c_ = compare->member;                                      \
		ORDERED(T, member, t_, b_, c_) NUMBER(T, member, t_, b_, c_) BITS(T, member, t_, b_, c_)                \
		target->member = t_;                                                                                    \
		break;                                                                                                  \
	}
#define REAL(T, member)                                                                                                 \
	{                                                                                                               \
		T t_ = target->member, b_ = operand->member, c_ = compare->member;                                      \
		ORDERED(T, member, t_, b_, c_) NUMBER(T, member, t_, b_, c_)                                            \
		target->member = t_;                                                                                    \
		break;                                                                                                  \
	}
#define COMPLEX(T, member)                                                                                              \
	{                                                                                                               \
		T t_ = target->member, b_ = operand->member, c_ = compare->member;                                      \
		NUMBER(T, member, t_, b_, c_)                                                                           \
		target->member = t_;                                                                                    \
		break;                                                                                                  \
	}

/* The formulas of fi_atomic(3). */
static void expect(int type, int op, union value *target, const union value *operand, const union value *compare)
{
	switch (type) {
	case FI_INT8: INTEGER(int8_t, i8)
	case FI_UINT8: INTEGER(uint8_t, u8)
	case FI_INT16: INTEGER(int16_t, i16)
	case FI_UINT16: INTEGER(uint16_t, u16)
	case FI_INT32: INTEGER(int32_t, i32)
	case FI_UINT32: INTEGER(uint32_t, u32)
	case FI_INT64: INTEGER(int64_t, i64)
	case FI_UINT64: INTEGER(uint64_t, u64)
	case FI_FLOAT: REAL(float, f)
	case FI_DOUBLE: REAL(double, d)
	case FI_LONG_DOUBLE: REAL(long double, ld)
	case FI_FLOAT_COMPLEX: COMPLEX(float complex, fc)
	case FI_DOUBLE_COMPLEX: COMPLEX(double complex, dc)
	case FI_LONG_DOUBLE_COMPLEX: COMPLEX(long double complex, ldc)
	case FI_INT128: INTEGER(i128, i128_)
	case FI_UINT128: INTEGER(u128, u128_)
	}
}

static union value make(int type, int number)
{
	union value v;
	memset(&v, 0, sizeof v);
	switch (type) {
	case FI_FLOAT: v.f = number * 0.5f; break;
	case FI_DOUBLE: v.d = number * 0.25; break;
	case FI_LONG_DOUBLE: v.ld = number * 0.125L + (number ? 0x1p-60L : 0); break;
	case FI_FLOAT_COMPLEX: v.fc = number * 0.5f + (number - 1) * 1.0f * I; break;
	case FI_DOUBLE_COMPLEX: v.dc = number * 0.5 + (number - 1) * 1.0 * I; break;
	case FI_LONG_DOUBLE_COMPLEX: v.ldc = number * 0.5L + (number - 1) * (1.0L + 0x1p-63L) * I; break;
	case FI_INT128: v.i128_ = ((i128) number << 70) + number; break;
	case FI_UINT128: v.u128_ = ((u128) number << 100) + number; break;
	default: v.i64 = number * 3; break;
	}
	return v;
}

/* Padding means nothing. */
static bool same(int type, const void *a, const void *b)
{
	if (type == FI_LONG_DOUBLE)
		return memcmp(a, b, 10) == 0;
	if (type == FI_LONG_DOUBLE_COMPLEX)
		return memcmp(a, b, 10) == 0 && memcmp((char *) a + 16, (char *) b + 16, 10) == 0;
	return memcmp(a, b, sizes[type]) == 0;
}

enum family { BASE, FETCH, COMPARE };
enum shape { PLAIN, VECTOR, MESSAGE, INJECT };

static uint64_t key, base;
static int contexts;

static ssize_t call(enum family family, enum shape shape, int type, int op, char *operand, char *compare, char *result)
{
	size_t size = sizes[type];
	void *context = (void *) (uintptr_t) ++contexts;
	struct fi_ioc b[2] = { { operand, 1 }, { operand + size, COUNT - 1 } };
	struct fi_ioc c[2] = { { compare, COUNT - 1 }, { compare + (COUNT - 1) * size, 1 } };
	struct fi_ioc r[3] = { { result, 1 }, { result + size, 1 }, { result + 2 * size, 1 } };
	struct fi_rma_ioc t[2] = { { base, 2, key }, { base + 2 * size, COUNT - 2, key } };
	struct fi_msg_atomic msg = { .msg_iov = b, .iov_count = 2, .addr = peer, .rma_iov = t, .rma_iov_count = 2,
		.datatype = type, .op = op, .context = context };
	if (op == FI_ATOMIC_READ && family == FETCH && shape == MESSAGE) {
		msg.msg_iov = NULL;
		msg.iov_count = 0;
	}
	switch (family) {
	case BASE:
		switch (shape) {
		case PLAIN: return fi_atomic(ep, operand, COUNT, NULL, peer, base, key, type, op, context);
		case VECTOR: return fi_atomicv(ep, b, NULL, 2, peer, base, key, type, op, context);
		case MESSAGE: return fi_atomicmsg(ep, &msg, FI_DELIVERY_COMPLETE | FI_FENCE);
		default: return fi_inject_atomic(ep, operand, COUNT, peer, base, key, type, op);
		}
	case FETCH:
		switch (shape) {
		case PLAIN:
			return fi_fetch_atomic(ep, op == FI_ATOMIC_READ ? NULL : operand, COUNT, NULL, result, NULL, peer, base,
				key, type, op, context);
		case VECTOR:
			return fi_fetch_atomicv(ep, b, NULL, 2, r, NULL, 3, peer, base, key, type, op, context);
		default: return fi_fetch_atomicmsg(ep, &msg, r, NULL, 3, 0);
		}
	default:
		switch (shape) {
		case PLAIN:
			return fi_compare_atomic(ep, operand, COUNT, NULL, compare, NULL, result, NULL, peer, base, key, type, op,
				context);
		case VECTOR:
			return fi_compare_atomicv(ep, b, NULL, 2, c, NULL, 2, r, NULL, 3, peer, base, key, type, op, context);
		default: return fi_compare_atomicmsg(ep, &msg, c, NULL, 2, r, NULL, 3, FI_INJECT);
		}
	}
}

static void one(enum family family, enum shape shape, int type, int op, int round)
{
	size_t size = sizes[type];
	_Alignas(32) char start[COUNT * 32], operand[COUNT * 32], compare[COUNT * 32], result[COUNT * 32], after[COUNT * 32];
	memset(result, 0x5a, sizeof result);
	for (int i = 0; i < COUNT; i++) {
		union value t = make(type, (i + round) % 3), b = make(type, (2 * i + round) % 4), c = make(type, (i * round) % 3);
		memcpy(start + i * size, &t, size);
		memcpy(operand + i * size, &b, size);
		memcpy(compare + i * size, &c, size);
	}
	EXPECT(fi_write(ep, start, COUNT * size, NULL, peer, base, key, NULL), 0);
	next(txcq);
	POST(call(family, shape, type, op, operand, compare, result));
	if (shape != INJECT) {
		struct fi_cq_tagged_entry entry = next(txcq);
		CHECK(entry.op_context == (void *) (uintptr_t) contexts);
		CHECK(entry.flags == (FI_ATOMIC | (family == BASE ? FI_WRITE : FI_READ)));
	}
	struct iovec iov = { after, COUNT * size };
	struct fi_rma_iov remote = { base, COUNT * size, key };
	struct fi_msg_rma read = { .msg_iov = &iov, .iov_count = 1, .addr = peer, .rma_iov = &remote, .rma_iov_count = 1 };
	POST(fi_readmsg(ep, &read, FI_FENCE));
	next(txcq);
	for (int i = 0; i < COUNT; i++) {
		union value t, b, c;
		memset(&t, 0, sizeof t);
		memset(&b, 0, sizeof b);
		memset(&c, 0, sizeof c);
		memcpy(&t, start + i * size, size);
		memcpy(&b, operand + i * size, size);
		memcpy(&c, compare + i * size, size);
		if (family != BASE && !same(type, &t, result + i * size))
			FAIL("type %d op %d family %d shape %d: element %d fetched wrongly", type, op, family, shape, i);
		expect(type, op, &t, &b, &c);
		if (!same(type, &t, after + i * size))
			FAIL("type %d op %d family %d shape %d round %d: element %d is wrong", type, op, family, shape, round, i);
	}
	nothing(txcq);
}

static void client(void)
{
	int pairs[3] = { 0 }, wide[3] = { 0 };
	for (int type = 0; type < TYPES; type++)
		for (int op = 0; op < OPS; op++)
			for (int family = BASE; family <= COMPARE; family++) {
				bool usable = family == COMPARE ? op >= FI_CSWAP : op < FI_CSWAP && !(family == BASE && op == FI_ATOMIC_READ);
				bool wanted = usable && defined(type, op);
				struct fi_atomic_attr attr = { 0 };
				size_t count = 0;
				uint64_t flags[] = { 0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC };
				int answer = wanted ? 0 : -FI_EOPNOTSUPP;
				EXPECT(fi_query_atomic(domain, type, op, &attr, flags[family] | FI_TAGGED), answer);
				if (wanted)
					CHECK(attr.size == sizes[type] && attr.count * attr.size == 2048);
				EXPECT(fi_query_atomic(domain, type, op, &attr, flags[family]), answer);
				EXPECT(family == BASE ? fi_atomicvalid(ep, type, op, &count)
					: family == FETCH ? fi_fetch_atomicvalid(ep, type, op, &count)
							  : fi_compare_atomicvalid(ep, type, op, &count), answer);
				for (int shape = PLAIN; shape <= (family == BASE ? INJECT : MESSAGE); shape++) {
					char dummy[256] = { 0 };
					if (!wanted)
						EXPECT(call(family, shape, type, op, dummy, dummy, dummy), -FI_EOPNOTSUPP);
					else
						for (int round = 0; round < 3; round++)
							one(family, shape, type, op, round);
				}
				if (wanted) {
					CHECK(attr.size == sizes[type] && attr.count == count && count * attr.size >= 65536);
					(type < FI_INT128 ? pairs : wide)[family]++;
				}
			}
	EXPECT(pairs[BASE], 130);
	EXPECT(pairs[FETCH], 144);
	EXPECT(pairs[COMPARE], 80);
	EXPECT(wide[BASE] + wide[FETCH] + wide[COMPARE], 60);
	struct fi_atomic_attr attr;
	EXPECT(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC), -FI_EBADFLAGS);
	EXPECT(fi_query_atomic(domain, FI_UINT64, FI_SUM, NULL, 0), -FI_EINVAL);
	EXPECT(fi_query_atomic(domain, 99, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);

	/* The largest count, one more, none at all; too much for an inject. */
	size_t count;
	EXPECT(fi_atomicvalid(ep, FI_UINT32, FI_SUM, &count), 0);
	uint32_t *many = calloc(count + 1, 4);
	uint64_t big_key, big_base;
	see("big", many, 16);
	memcpy(&big_key, many, 8);
	memcpy(&big_base, (char *) many + 8, 8);
	for (size_t i = 0; i <= count; i++)
		many[i] = (uint32_t) i;
	EXPECT(fi_atomic(ep, many, count, NULL, peer, big_base, big_key, FI_UINT32, FI_SUM, many), 0);
	CHECK(next(txcq).op_context == many);
	EXPECT(fi_atomic(ep, many, count + 1, NULL, peer, big_base, big_key, FI_UINT32, FI_SUM, NULL), -FI_EMSGSIZE);
	EXPECT(fi_atomic(ep, many, 0, NULL, peer, big_base, big_key, FI_UINT32, FI_SUM, NULL), -FI_EINVAL);
	EXPECT(fi_atomic(ep, NULL, 1, NULL, peer, big_base, big_key, FI_UINT32, FI_SUM, NULL), -FI_EINVAL);
	EXPECT(fi_inject_atomic(ep, many, info->tx_attr->inject_size / 4 + 1, peer, big_base, big_key, FI_UINT32, FI_SUM),
		-FI_EMSGSIZE);
	EXPECT(fi_atomic(ep, many, 1, NULL, peer + 7, big_base, big_key, FI_UINT32, FI_SUM, NULL), -FI_EINVAL);

	/* Rights: read-only, write-only. Ranges, keys. */
	uint64_t keys[4];
	see("rights", keys, sizeof keys);
	uint64_t was = 0, one_ = 1;
	struct { uint64_t key, address; bool read, write; } rights[] = {
		{ keys[0], keys[1], true, false }, { keys[2], keys[3], false, true } };
	for (int i = 0; i < 2; i++) {
		EXPECT(fi_fetch_atomic(ep, NULL, 1, NULL, &was, NULL, peer, rights[i].address, rights[i].key, FI_UINT64,
			       FI_ATOMIC_READ, NULL), 0);
		if (rights[i].read)
			next(txcq);
		else
			EXPECT(next_error(txcq).err, FI_EACCES);
		EXPECT(fi_atomic(ep, &one_, 1, NULL, peer, rights[i].address, rights[i].key, FI_UINT64, FI_SUM, NULL), 0);
		if (rights[i].write)
			next(txcq);
		else
			EXPECT(next_error(txcq).err, FI_EACCES);
		EXPECT(fi_fetch_atomic(ep, &one_, 1, NULL, &was, NULL, peer, rights[i].address, rights[i].key, FI_UINT64, FI_SUM,
			       &was), 0);
		struct fi_cq_err_entry error = next_error(txcq);
		CHECK(error.err == FI_EACCES && error.op_context == &was && error.flags == (FI_ATOMIC | FI_READ));
	}
	EXPECT(fi_atomic(ep, &one_, 1, NULL, peer, base + ROOM - 4, key, FI_UINT64, FI_SUM, NULL), 0);
	EXPECT(next_error(txcq).err, FI_EACCES);
	EXPECT(fi_inject_atomic(ep, &one_, 1, peer, base, key + 1234567, FI_UINT64, FI_SUM), 0);
	EXPECT(next_error(txcq).err, FI_ENOKEY);
	EXPECT(fi_atomic(ep, &one_, 1, NULL, peer, base + 1, key, FI_UINT64, FI_SUM, NULL), 0);
	EXPECT(next_error(txcq).err, FI_EINVAL);
	nothing(txcq);
	show("done", "", 1);
	close_all();
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	directory = argv[1];
	bool server = strcmp(argv[2], "server") == 0;
	struct wishes wishes = { .caps = FI_ATOMIC | FI_RMA, .mr_mode = atoi(argv[3]), .wait = FI_WAIT_NONE };
	open_endpoint(&wishes, NULL, 0);
	CHECK(info->domain_attr->data_progress == FI_PROGRESS_AUTO);
	meet(argv[2], server ? "client" : "server");
	if (!server) {
		see("key", &key, 8);
		see("base", &base, 8);
		client();
		return 0;
	}
	bool virtual = info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
	char *memory = aligned_alloc(4096, ROOM);
	struct fid_mr *mr, *big, *rights[2];
	uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
	EXPECT(fi_mr_reg(domain, memory, ROOM, access, 0, 0xabcdef0123456789, 0, &mr, NULL), 0);
	key = fi_mr_key(mr);
	base = virtual ? (uintptr_t) memory : 0;
	show("base", &base, 8);
	show("key", &key, 8);
	uint32_t *many = calloc(1 << 18, 4);
	EXPECT(fi_mr_reg(domain, many, 4 << 18, access, 0, 2, 0, &big, NULL), 0);
	uint64_t where[4] = { fi_mr_key(big), virtual ? (uintptr_t) many : 0 };
	show("big", where, 16);
	uint64_t words[2] = { 5, 7 };
	EXPECT(fi_mr_reg(domain, &words[0], 8, FI_REMOTE_READ, 0, 3, 0, &rights[0], NULL), 0);
	EXPECT(fi_mr_reg(domain, &words[1], 8, FI_REMOTE_WRITE, 0, 4, 0, &rights[1], NULL), 0);
	for (int i = 0; i < 2; i++) {
		where[2 * i] = fi_mr_key(rights[i]);
		where[2 * i + 1] = virtual ? (uintptr_t) &words[i] : 0;
	}
	show("rights", where, 32);
	/* The library is not called until the client is through. */
	char done;
	see("done", &done, 1);
	CHECK(words[0] == 5 && words[1] == 8);
	for (uint32_t i = 0; i < 1 << 18; i++)
		CHECK(many[i] == i);
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_close(&big->fid), 0);
	EXPECT(fi_close(&rights[0]->fid), 0);
	EXPECT(fi_close(&rights[1]->fid), 0);
	close_all();
	return 0;
}
